"""Reference corpora, and the longest word sequences that a text shares with one, exactly, by a suffix array.

Every position of the corpus is sorted by the DEPTH words that begin there. The corpus positions that share most words
with a text are neighbours of the place where the text would be sorted in, and a binary search looks at both of them.
Invariant: what is compared is always the text itself and no hash of it, so there are no false matches and no missed
ones. Array names end in their axes: N words of the corpus, M sorted positions, Q words of the query, S searched.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
import zipfile
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prorl.envs.errors import ProrlError
from prorl.envs.files import replacing

DEPTH = 16  # words to which a match is followed; a power of two, as sorting doubles the width
BOUNDARY = 0  # stands between the documents, and no query holds it
UNKNOWN = -1  # a word that the corpus does not have, and the end of a query's text
VERSION = 1  # of the words and of the file: raise it with every change of either
MAX_WORDS = 2**31 - 1
AT_A_TIME = 1 << 16  # positions searched together: bounds the memory


Advance = Callable[[str, int], None]

# A tag such as <think> belongs to the format of a response: one word, or `</think><answer>` alone would be seven.
_WORD = re.compile(r"</?\w+>|[^\W_]+|[^\w\s]|_")


class CorpusError(ProrlError):
    """A reference corpus that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Documents to compare with. A match never reaches from one document into the next."""

    name: str
    key: str  # 16 hexadecimal digits, equal for equal content
    documents: Callable[[], Iterable[str]]


def split_words(text: str) -> Iterator[str]:
    """The words of a text: runs of letters and digits, tags, and every other visible character by itself.

    Upper and lower case are the same, and so are the ways in which Unicode spells one character.

    >>> list(split_words("<think>3*8 = 24</think> Done_now!"))
    ['<think>', '3', '*', '8', '=', '24', '</think>', 'done', '_', 'now', '!']
    """
    # No word spans two lines, and all words of a large document at once would take ten times its memory.
    for line in text.splitlines():
        yield from _WORD.findall(unicodedata.normalize("NFC", line.casefold()))


def corpus_of_texts(name: str, texts: Sequence[str]) -> Corpus:
    """A corpus in which every text is a document."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(json.dumps(text).encode())
    return Corpus(name=name, key=digest.hexdigest(), documents=lambda: texts)


def corpus_of_files(paths: Sequence[Path]) -> Corpus:
    """The documents of files, and of all files below folders, that end in .txt, .jsonl or .parquet.

    A text file is one document. In the others every row is one: its field or column `text`.

    Raises:
        CorpusError: a path is missing, of another kind, or holds no such file.
    """
    files = [file for path in paths for file in _files(path)]
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        with file.open("rb") as content:
            digest.update(file.suffix.encode() + hashlib.file_digest(content, "blake2b").digest())
    name = ", ".join(path.name or str(path) for path in paths)
    return Corpus(
        name=name,
        key=digest.hexdigest(),
        documents=lambda: chain.from_iterable(_READERS[file.suffix](file) for file in files),
    )


def _files(path: Path) -> list[Path]:
    kinds = ", ".join(_READERS)
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix in _READERS and file.is_file())
        if not found:
            raise CorpusError(f"the corpus {path} is a folder without a file in {kinds}")
        return found
    if not path.is_file():
        raise CorpusError(f"there is no corpus {path}: name a file in {kinds}, or a folder of these")
    if path.suffix not in _READERS:
        raise CorpusError(f"the corpus {path} is of no kind that can be read: {kinds}")
    return [path]


def _read_text(path: Path) -> Iterator[str]:
    try:
        yield path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorpusError(f"the corpus {path} is not UTF-8 ({error}): convert it first") from None


def _read_json_lines(path: Path) -> Iterator[str]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise CorpusError(f"the corpus {path}, line {number}: {error}") from None
            text = row.get("text") if isinstance(row, dict) else None
            if not isinstance(text, str):
                raise CorpusError(
                    f"the corpus {path}, line {number}: a line is a JSON object with a field `text` that is a string"
                )
            yield text


def _read_parquet(path: Path) -> Iterator[str]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as table:
            names = table.schema_arrow.names
            if "text" not in names:
                raise CorpusError(f"the corpus {path} has no column `text`; it has {', '.join(names)}")
            for batch in table.iter_batches(columns=["text"]):
                yield from (text for text in batch.column(0).cast(pyarrow.string()).to_pylist() if text)
    except pyarrow.ArrowException as error:
        raise CorpusError(f"the corpus {path} cannot be read as Parquet: {error}") from None


_READERS: Mapping[str, Callable[[Path], Iterator[str]]] = {
    ".txt": _read_text,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusIndex:
    """A corpus, made searchable by `build_index`."""

    vocabulary: Mapping[str, int]  # word → id, from 1
    documents: int
    text_N: NDArray[np.int32]  # word ids, a BOUNDARY after every document, DEPTH of them at the end
    starts_M: NDArray[np.int32]  # the positions of words in `text_N`, sorted by the DEPTH ids from there on

    @property
    def words(self) -> int:
        """Words of the corpus."""
        return len(self.starts_M)

    def longest_matches(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """For every word of every text: how many words from there on stand so in one document, up to DEPTH."""
        ids = array("i")
        spans = []
        for text in texts:
            begin = len(ids)
            ids.extend(self.vocabulary.get(word, UNKNOWN) for word in split_words(text))
            spans.append(slice(begin, len(ids)))
            ids.append(UNKNOWN)
        query_Q = np.concatenate([np.asarray(ids, np.int32), np.full(DEPTH, UNKNOWN, np.int32)])
        known_S = np.flatnonzero(query_Q != UNKNOWN)
        lengths_Q = np.zeros(len(query_Q), np.int64)
        for first in range(0, len(known_S), AT_A_TIME):
            part_S = known_S[first : first + AT_A_TIME]
            lengths_Q[part_S] = self._search(query_Q, part_S)
        return [lengths_Q[span] for span in spans]

    def _search(self, query_Q: NDArray[np.int32], at_S: NDArray[np.int64]) -> NDArray[np.int64]:
        """The longest common prefix of the query at each position with any suffix of the corpus."""
        low_S, high_S = np.zeros_like(at_S), np.full_like(at_S, self.words)
        best_S = np.zeros_like(at_S)
        for _ in range(self.words.bit_length()):
            middle_S = (low_S + high_S) // 2
            place_S = self.starts_M[np.minimum(middle_S, self.words - 1)].astype(np.int64)
            common_S = _common_prefix(self.text_N, place_S, query_Q, at_S)
            best_S = np.maximum(best_S, common_S)
            below_S = self.text_N[place_S + common_S] < query_Q[at_S + common_S]
            low_S = np.where(below_S, middle_S + 1, low_S)
            high_S = np.where(below_S, high_S, middle_S)
        return best_S


def build_index(documents: Iterable[str], advance: Advance = lambda _what, _done: None) -> CorpusIndex:
    """Index these documents; `advance(what, done)` reports progress.

    Raises:
        CorpusError: there is not one word, or there are too many.
    """
    vocabulary: defaultdict[str, int] = defaultdict(count(1).__next__)
    ids, number = array("i"), 0
    for number, document in enumerate(documents, start=1):
        ids.extend(map(vocabulary.__getitem__, split_words(document)))
        ids.append(BOUNDARY)
        advance("words read", len(ids) - number)
    if not vocabulary:
        raise CorpusError("the corpus has no words: give one with text in it")
    if len(ids) > MAX_WORDS - DEPTH:
        raise CorpusError(
            f"the corpus has {len(ids):,} words, and {MAX_WORDS:,} is the most: take a part of it"
        )
    text_N = np.concatenate([np.asarray(ids, np.int32), np.full(DEPTH, BOUNDARY, np.int32)])
    return CorpusIndex(
        vocabulary=dict(vocabulary), documents=number, text_N=text_N, starts_M=_sorted_starts(text_N, advance)
    )


def open_index(corpus: Corpus, cache: Path, *, advance: Advance, say: Callable[[str], None]) -> CorpusIndex:
    """The index of a corpus: from the folder `cache` if it was built before, else built and stored there.

    A damaged file is reported to `say` and built again.

    Raises:
        CorpusError: the corpus cannot be read or indexed.
        StorageError: there is no room for the index.
    """
    path = cache / f"corpus-{corpus.key}-{VERSION}.npz"
    if path.exists():
        try:
            return _load(path)
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            say(f"the index {path} is damaged ({error}); it is built again")
    index = build_index(corpus.documents(), advance)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        spelled = "\n".join(index.vocabulary).encode("utf-8", "surrogatepass")
        np.savez(
            file,
            vocabulary=np.frombuffer(spelled, np.uint8),
            documents=np.int64(index.documents),
            text=index.text_N,
            starts=index.starts_M,
        )
    return index


def _load(path: Path) -> CorpusIndex:
    """The index that `open_index` stored; the zip file's checksums find every damage."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        spelled = stored["vocabulary"].tobytes().decode("utf-8", "surrogatepass").split("\n")
        return CorpusIndex(
            vocabulary={word: id_ for id_, word in enumerate(spelled, start=1)},
            documents=int(stored["documents"]),
            text_N=stored["text"],
            starts_M=stored["starts"],
        )


def _sorted_starts(text_N: NDArray[np.int32], advance: Advance) -> NDArray[np.int32]:
    """Prefix doubling (Manber & Myers 1993) that stops at DEPTH words, where later order no longer matters."""
    rank_N = text_N.astype(np.int64)
    width = 1
    while width < DEPTH:
        # A pair of ranks orders twice as many words. Behind the end there is nothing but BOUNDARY, of rank 0.
        key_N = rank_N * (rank_N.max() + 1)
        key_N[:-width] += rank_N[width:]
        order_N = np.argsort(key_N)
        key_N = key_N[order_N]
        rank_N[order_N] = np.cumsum(np.diff(key_N, prepend=key_N[:1]) != 0)
        width *= 2
        advance("words sorted by the next", width)
    starts_M: NDArray[np.int32] = order_N[text_N[order_N] != BOUNDARY].astype(np.int32)
    return starts_M


def _common_prefix(
    left: NDArray[np.int32], left_S: NDArray[np.int64], right: NDArray[np.int32], right_S: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many ids from these positions on are the same in both arrays, up to DEPTH."""
    common_S = np.zeros_like(left_S)
    equal = np.arange(len(left_S))
    for width in range(DEPTH):
        equal = equal[left[left_S[equal] + width] == right[right_S[equal] + width]]
        common_S[equal] = width + 1
    return common_S
