"""What counts as a word, and which documents files hold."""

import json
import unicodedata

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from prorl.lab.evals.corpus import CorpusError, corpus_of_files, corpus_of_texts, split_words


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


def test_the_key_follows_the_content_and_not_the_place(tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    here, there = (corpus_of_files([tmp_path / name]) for name in ("here", "there"))
    assert here.key == there.key
    with (tmp_path / "there" / "a.txt").open("a") as file:
        file.write("!")
    assert corpus_of_files([tmp_path / "there"]).key != here.key


def test_texts_that_are_cut_differently_are_another_corpus():
    keys = {corpus_of_texts("c", texts).key for texts in (["a b"], ["a", "b"], ["a", "b", ""], ["ab"])}
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", "München".encode("latin-1"), "not UTF-8"),
        (
            "a.jsonl",
            b'{"text": "fine"}\n{"text": 3}\n',
            "line 2: a line is a JSON object with a field `text`",
        ),
        ("a.jsonl", b"[]\n", "line 1"),
        ("a.jsonl", b'{"text": "cut', "line 1"),
        ("a.parquet", b"PAR1 no", "cannot be read as Parquet"),
        ("a.doc", b"", "no kind that can be read: .txt, .jsonl, .parquet"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_in_a_sentence(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=sentence):
        list(corpus_of_files([tmp_path / name]).documents())


def test_a_table_needs_a_column_text(tmp_path):
    parquet.write_table(pyarrow.table({"content": ["x"], "id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="no column `text`; it has content, id"):
        list(corpus_of_files([tmp_path / "a.parquet"]).documents())


def test_a_path_without_a_corpus_is_said_in_a_sentence(tmp_path):
    with pytest.raises(CorpusError, match="a folder without a file in"):
        corpus_of_files([tmp_path])
    with pytest.raises(CorpusError, match="there is no corpus"):
        corpus_of_files([tmp_path / "missing.txt"])
