"""Reference corpora, and the longest word sequences that texts share with one, exactly.

Every sequence of up to DEPTH words of the texts gets a number, by that of its beginning and its last word. One pass
over the corpus follows these numbers from every position, in batches, so memory does not grow with the corpus.
Invariant: words are compared and no hash of them, so there are no false matches and no missed ones. Array names end
in their axes: Q words of the texts, N words of a batch of the corpus, M positions of it that still match.
"""

from __future__ import annotations

import json
import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prorl.envs.errors import ProrlError

DEPTH = 16  # words to which a match is followed
KINDS = (".txt", ".jsonl", ".parquet")
AT_A_TIME = 1 << 20  # words of the corpus that are searched together: bounds the memory

Ids = NDArray[np.int64]
Advance = Callable[[str, int], None]

# A tag such as <think> belongs to the format of a response: one word, or `</think><answer>` alone would be seven.
_WORD = re.compile(r"</?\w+>|[^\W_]+|[^\w\s]|_")


class CorpusError(ProrlError):
    """A reference corpus that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Documents to compare with. A match never reaches from one document into the next."""

    name: str
    documents: Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """What texts share with a corpus."""

    documents: int  # of the corpus
    words: int  # of the corpus
    lengths: Sequence[Ids]  # per text, for each word: how many from there on are in one document, up to DEPTH


def split_words(text: str) -> Iterator[str]:
    """The words of a text: runs of letters and digits, tags, and every other visible character by itself.

    Upper and lower case are the same, and so are the ways in which Unicode spells one character.

    >>> list(split_words("<think>3*8 = 24</think> Done_now!"))
    ['<think>', '3', '*', '8', '=', '24', '</think>', 'done', '_', 'now', '!']
    """
    # No word spans two lines, and all words of a large document at once would take ten times its memory.
    for line in text.splitlines():
        yield from _WORD.findall(unicodedata.normalize("NFC", line.casefold()))


def corpus_of_files(paths: Sequence[Path]) -> Corpus:
    """The documents of files, and of all files below folders, that end in .txt, .jsonl or .parquet.

    A text file is one document. In the others every row is one: its field or column `text`.

    Raises:
        CorpusError: a path is missing, of another kind, or holds no such file.
    """
    files = [file for path in paths for file in _files(path)]
    return Corpus(
        name=", ".join(path.name or str(path) for path in paths),
        documents=lambda: chain.from_iterable(map(_documents, files)),
    )


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix in KINDS and file.is_file())
    else:
        found = [path] if path.suffix in KINDS and path.is_file() else []
    if not found:
        raise CorpusError(
            f"there is no corpus {path}: name a file in {', '.join(KINDS)}, or a folder with some of these"
        )
    return found


def _documents(path: Path) -> Iterator[str]:
    try:
        yield from _texts(path)
    except (ValueError, TypeError, NotImplementedError) as error:  # pyarrow's errors are these, too
        raise CorpusError(
            f"the corpus {path} cannot be read ({error}): write .txt in UTF-8, each line of .jsonl as an object "
            "with a field `text`, .parquet with a column `text`"
        ) from None


def _texts(path: Path) -> Iterator[str]:
    if path.suffix == ".txt":
        yield path.read_text(encoding="utf-8-sig")
    elif path.suffix == ".jsonl":
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        text = json.loads(line)["text"]
                    except (ValueError, KeyError, TypeError):
                        text = None
                    if not isinstance(text, str):
                        raise ValueError(f"line {number}")
                    yield text
    else:
        from pyarrow import parquet, string

        with parquet.ParquetFile(path) as table:
            if "text" not in table.schema_arrow.names:
                raise ValueError(f"it has the columns {', '.join(table.schema_arrow.names)}")
            for batch in table.iter_batches(columns=["text"]):
                yield from filter(None, batch.column(0).cast(string()).to_pylist())


def longest_matches(
    texts: Sequence[str], corpus: Corpus, advance: Advance = lambda _what, _done: None
) -> Matches:
    """Find the words of the texts in the corpus; `advance(what, done)` reports progress.

    Raises:
        CorpusError: the corpus cannot be read, or has not one word.
    """
    vocabulary: defaultdict[str, int] = defaultdict(count(1).__next__)
    ids_Q, spans = array("q"), []
    for text in texts:
        begin = len(ids_Q)
        ids_Q.extend(map(vocabulary.__getitem__, split_words(text)))
        spans.append(slice(begin, len(ids_Q)))
        ids_Q.append(0)
    sequences = _Sequences(ids_Q, len(vocabulary) + 1)
    batch, documents, words = array("q"), 0, 0
    for document in corpus.documents():
        before = len(batch)
        batch.extend(vocabulary.get(word, 0) for word in split_words(document))
        documents, words = documents + 1, words + len(batch) - before
        batch.append(0)
        advance("words read", words)
        if len(batch) > AT_A_TIME:
            sequences.find_in(batch)
            batch = array("q")
    sequences.find_in(batch)
    if not words:
        raise CorpusError("the corpus has no words: give one with text in it")
    lengths_Q = sequences.longest()
    return Matches(documents=documents, words=words, lengths=[lengths_Q[span] for span in spans])


class _Sequences:
    """The word sequences of texts, numbered from 1 for each length; 0 is none, as is a word of another text."""

    def __init__(self, ids_Q: array[int], size: int) -> None:
        self._size = size  # of the vocabulary
        padded_Q = _padded(ids_Q)
        names_Q = padded_Q[: len(ids_Q)]
        self._names = [names_Q]  # by length: of the sequence that begins at each word
        self._keys: list[
            Ids
        ] = []  # by length from 2 on, sorted: number of the beginning and last word as one number
        for width in range(1, DEPTH):
            next_Q = padded_Q[width : width + len(ids_Q)]
            key_Q = np.where((names_Q > 0) & (next_Q > 0), names_Q * size + next_Q, 0)
            self._keys.append(np.unique(np.append(key_Q, 0)))
            names_Q = np.searchsorted(self._keys[-1], key_Q)
            self._names.append(names_Q)
        self._found = [np.zeros(size, bool), *(np.zeros(len(keys), bool) for keys in self._keys)]

    def find_in(self, ids_N: array[int]) -> None:
        """Mark the sequences that a part of the corpus holds, given as words of the texts or 0."""
        padded_N = _padded(ids_N)
        at_M = np.flatnonzero(padded_N)
        names_M = padded_N[at_M]
        self._found[0][names_M] = True
        for width, keys in enumerate(self._keys, start=1):
            key_M = names_M * self._size + padded_N[at_M + width]
            place_M = np.minimum(np.searchsorted(keys, key_M), len(keys) - 1)
            same_M = keys[place_M] == key_M
            at_M, names_M = at_M[same_M], place_M[same_M]
            self._found[width][names_M] = True

    def longest(self) -> Ids:
        """The length of the longest sequence found at each word: where one is found, so is its beginning."""
        lengths_Q = np.zeros(len(self._names[0]), np.int64)
        for found, names_Q in zip(self._found, self._names, strict=True):
            lengths_Q += found[names_Q]
        return lengths_Q


def _padded(ids: array[int]) -> Ids:
    return np.concatenate([np.asarray(ids, np.int64), np.zeros(DEPTH, np.int64)])
