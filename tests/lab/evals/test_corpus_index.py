"""The longest matches are those that looking everywhere finds, and an index is built once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.files import StorageError
from prorl.lab.evals.corpus import DEPTH, Corpus, CorpusError, build_index, corpus_of_texts, open_index

LETTERS = st.lists(st.sampled_from("abc"), max_size=40).map(" ".join)
CORPORA = st.lists(LETTERS, min_size=1, max_size=6).filter(lambda texts: any(texts))
REPETITIVE = st.integers(1, 40).map(lambda size: " ".join("a" * size))


def look_everywhere(documents: list[str], text: str) -> list[int]:
    """For every word the longest match, by definition."""
    words, corpus = text.split(), [document.split() for document in documents]
    lengths = range(1, min(DEPTH, len(words)) + 1)
    grams = {tuple(d[i : i + n]) for d in corpus for n in lengths for i in range(len(d) - n + 1)}
    return [
        max((n for n in lengths if i + n <= len(words) and tuple(words[i : i + n]) in grams), default=0)
        for i in range(len(words))
    ]


@given(CORPORA, st.lists(LETTERS, max_size=4))
def test_matches_are_those_of_looking_everywhere(documents, texts):
    found = build_index(documents).longest_matches(texts)
    assert [matches.tolist() for matches in found] == [look_everywhere(documents, text) for text in texts]


@given(st.lists(REPETITIVE, min_size=1, max_size=3), REPETITIVE)
def test_repetitions_longer_than_a_match_is_followed(documents, text):
    (matches,) = build_index(documents).longest_matches([text])
    assert matches.tolist() == look_everywhere(documents, text)


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_a_corpus_holds_every_one_of_its_texts(documents):
    try:
        index = build_index(documents)
    except CorpusError:
        assert not any(document.split() for document in documents)
        return
    for matches in index.longest_matches(documents):
        assert matches.tolist() == [min(DEPTH, len(matches) - i) for i in range(len(matches))]


def test_a_match_does_not_reach_into_the_next_document():
    text = "one two three four"
    assert build_index([text]).longest_matches([text])[0].tolist() == [4, 3, 2, 1]
    assert build_index(["one two", "three four"]).longest_matches([text])[0].tolist() == [2, 1, 2, 1]


def test_a_match_does_not_reach_into_the_next_text():
    found = build_index(["one two three four"]).longest_matches(["one two", "three four"])
    assert [matches.tolist() for matches in found] == [[2, 1], [2, 1]]


def test_unknown_words_match_nothing_and_not_each_other():
    index = build_index(["one two", ""])
    assert index.longest_matches(["one zzz two", "yyy xxx", ""])[0].tolist() == [1, 0, 1]
    assert [matches.tolist() for matches in index.longest_matches(["yyy xxx", ""])] == [[0, 0], []]


def test_an_index_counts_its_documents_and_words():
    index = build_index(["one two, three", "", "one"])
    assert (index.documents, index.words, len(index.vocabulary)) == (3, 5, 4)


@pytest.mark.parametrize("documents", [[], [""], [" ", "\n"]])
def test_a_corpus_without_words_is_refused(documents):
    with pytest.raises(CorpusError, match="no words"):
        build_index(documents)


# -- the cache

TEXTS = ["one two three", "zwei drei \ud800 Élan", "four"]


class Counted:
    """A corpus that counts how often it is read."""

    def __init__(self) -> None:
        self.read = 0
        self.corpus = Corpus(name="c", key="0123456789abcdef", documents=self.documents)

    def documents(self) -> list[str]:
        self.read += 1
        return TEXTS


def opened(counted, cache, said):
    index = open_index(counted.corpus, cache, advance=lambda _what, _done: None, say=said.append)
    return [matches.tolist() for matches in index.longest_matches(["two three zwei", "ÉLAN four \ud800"])]


def test_an_index_is_built_once_and_comes_back_as_it_was(tmp_path):
    counted, said = Counted(), []
    first = opened(counted, tmp_path / "cache", said)
    assert opened(counted, tmp_path / "cache", said) == first == [[2, 1, 1], [1, 1, 1]]
    assert (counted.read, said) == (1, [])


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "another"])
def test_a_damaged_index_is_said_and_built_again(tmp_path, damage):
    counted, said = Counted(), []
    first = opened(counted, tmp_path, said)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    if damage == "another":
        with path.open("wb") as file:
            np.savez(file, something=np.zeros(3))
    else:
        middle = whole.index(b"one\ntwo")
        flipped = whole[:middle] + b"?" + whole[middle + 1 :]
        path.write_bytes({"empty": b"", "cut": whole[:-100], "flipped": flipped}[damage])
    assert opened(counted, tmp_path, said) == first
    assert counted.read == 2
    assert len(said) == 1
    assert "is damaged" in said[0]
    assert path.read_bytes()[:2] == b"PK"
    assert opened(counted, tmp_path, said) == first
    assert counted.read == 2


def test_a_disk_without_room_leaves_no_index_behind(tmp_path, files_limited_to):
    corpus = corpus_of_texts("c", [" ".join(map(str, range(5000)))])
    with files_limited_to(10_000), pytest.raises(StorageError, match="free some space"):
        open_index(corpus, tmp_path, advance=lambda _what, _done: None, say=print)
    assert not list(tmp_path.iterdir())
