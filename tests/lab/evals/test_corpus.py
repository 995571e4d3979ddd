"""What counts as a word, which documents files hold, and the longest matches that looking everywhere finds."""

from __future__ import annotations

import json
import unicodedata

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from prorl.lab.evals import corpus as corpora
from prorl.lab.evals.corpus import (
    DEPTH,
    Corpus,
    CorpusError,
    corpus_of_files,
    longest_matches,
    split_words,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t\r\n", []),
        ("Don't stop", ["don", "'", "t", "stop"]),
        ("3*(8+1)=27", ["3", "*", "(", "8", "+", "1", ")", "=", "27"]),
        ("x2 a_b", ["x2", "a", "_", "b"]),
        ("</think><answer>4</answer>", ["</think>", "<answer>", "4", "</answer>"]),
        ("a < b > c", ["a", "<", "b", ">", "c"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("Москва, 東京!", ["москва", ",", "東京", "!"]),
        ("\ud800 odd", ["\ud800", "odd"]),
    ],
)
def test_words(text, expected):
    assert list(split_words(text)) == expected


@given(st.text())
def test_neither_case_nor_white_space_nor_the_spelling_of_a_character_matters(text):
    parts = text.split()
    assert list(split_words(" ".join(parts))) == list(split_words("\n\n".join(parts)))
    composed, decomposed = (unicodedata.normalize(form, "É" + "Ärger") for form in ("NFC", "NFD"))
    assert list(split_words(composed)) == list(split_words(decomposed.swapcase()))


@given(st.text())
def test_words_hold_every_visible_character_once(text):
    folded = unicodedata.normalize("NFC", text.casefold())
    assert "".join(split_words(text)) == "".join(folded.split())


def write(folder):
    (folder / "a.txt").write_text("first line\nsecond line", encoding="utf-8-sig")
    (folder / "deep").mkdir()
    lines = "".join(json.dumps({"text": text, "id": 7}) + "\n" for text in ("one", "two\nthree"))
    (folder / "deep" / "b.jsonl").write_text(lines + "\n")
    table = pyarrow.table({"id": [1, 2, 3], "text": ["uno", None, "due"]})
    parquet.write_table(table, folder / "deep" / "c.parquet")
    (folder / "notes.md").write_text("not part of it")


def test_a_folder_gives_the_documents_of_all_its_files(tmp_path):
    write(tmp_path)
    documents = ["first line\nsecond line", "one", "two\nthree", "uno", "due"]
    assert list(corpus_of_files([tmp_path]).documents()) == documents


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", "München".encode("latin-1"), r"'utf-8' codec .* write \.txt in UTF-8"),
        ("a.jsonl", b'{"text": "fine"}\n{"text": 3}\n', r"line 2\): .* with a field `text`"),
        ("a.jsonl", b"[]\n", "line 1"),
        ("a.jsonl", b'{"text": "cut', "line 1"),
        ("a.parquet", b"PAR1 no", "a.parquet cannot be read"),
        ("a.parquet", {"content": ["x"], "id": [1]}, "it has the columns content, id"),
        ("a.parquet", {"text": [["x"]]}, "a.parquet cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_in_a_sentence(tmp_path, name, content, sentence):
    if isinstance(content, dict):
        parquet.write_table(pyarrow.table(content), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=sentence):
        list(corpus_of_files([tmp_path / name]).documents())


@pytest.mark.parametrize("name", [".", "missing.txt", "a.doc"])
def test_a_path_without_a_corpus_is_said_in_a_sentence(tmp_path, name):
    (tmp_path / "a.doc").touch()
    with pytest.raises(CorpusError, match=r"there is no corpus .* in \.txt, \.jsonl, \.parquet, or a folder"):
        corpus_of_files([tmp_path / name])


# -- the longest matches

LETTERS = st.lists(st.sampled_from("abc"), max_size=40).map(" ".join)
CORPORA = st.lists(LETTERS, min_size=1, max_size=6).filter(any)
REPETITIVE = st.integers(1, 40).map(lambda size: " ".join("a" * size))


def matches(documents: list[str], texts: list[str]) -> list[list[int]]:
    return [
        found.tolist()
        for found in longest_matches(texts, Corpus(name="c", documents=lambda: documents)).lengths
    ]


def look_everywhere(documents: list[str], text: str) -> list[int]:
    """For every word the longest match, by definition."""
    words, corpus = text.split(), [document.split() for document in documents]
    lengths = range(1, min(DEPTH, len(words)) + 1)
    grams = {tuple(d[i : i + n]) for d in corpus for n in lengths for i in range(len(d) - n + 1)}
    return [
        max((n for n in lengths if i + n <= len(words) and tuple(words[i : i + n]) in grams), default=0)
        for i in range(len(words))
    ]


@pytest.mark.parametrize("batch", [1, 30, 1 << 20])
@given(documents=CORPORA, texts=st.lists(LETTERS, max_size=4))
def test_matches_are_those_of_looking_everywhere(documents, texts, batch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "AT_A_TIME", batch)
        assert matches(documents, texts) == [look_everywhere(documents, text) for text in texts]


@given(st.lists(REPETITIVE, min_size=1, max_size=3), REPETITIVE)
def test_repetitions_longer_than_a_match_is_followed(documents, text):
    assert matches(documents, [text]) == [look_everywhere(documents, text)]


@given(
    st.lists(st.text(max_size=20), min_size=1, max_size=4).filter(lambda texts: any(map(str.split, texts)))
)
def test_a_corpus_holds_every_one_of_its_texts(documents):
    for found in matches(documents, documents):
        assert found == [min(DEPTH, len(found) - i) for i in range(len(found))]


@pytest.mark.parametrize(
    ("documents", "texts", "found"),
    [
        (["one two three four"], ["one two three four"], [[4, 3, 2, 1]]),
        (["one two", "three four"], ["one two three four"], [[2, 1, 2, 1]]),
        (["one two three four"], ["one two", "three four"], [[2, 1], [2, 1]]),
        (["one two", ""], ["one zzz two", "yyy xxx", ""], [[1, 0, 1], [0, 0], []]),
        (["one two", ""], ["yyy xxx", ""], [[0, 0], []]),
        (["zwei drei \ud800 Élan"], ["ÉLAN drei \ud800"], [[1, 2, 1]]),
    ],
)
def test_a_match_stays_within_a_document_a_text_and_known_words(documents, texts, found):
    assert matches(documents, texts) == found


def test_documents_and_words_are_counted():
    found = longest_matches(["one"], Corpus(name="c", documents=lambda: ["one two, three", "", "one"]))
    assert (found.documents, found.words) == (3, 5)


@pytest.mark.parametrize("documents", [[], [""], [" ", "\n"]])
def test_a_corpus_without_words_is_refused(documents):
    with pytest.raises(CorpusError, match="no words"):
        matches(documents, ["one"])
