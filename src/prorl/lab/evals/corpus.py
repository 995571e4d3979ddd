"""Reference corpora: what counts as a word of a text, and the documents that files hold.

A corpus is named by a hash of its content, so what was computed from it once holds as long as it does not change.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from prorl.envs.errors import ProrlError

# A tag such as <think> belongs to the format of a response: one word, or `</think><answer>` alone would be seven.
_WORD = re.compile(r"</?\w+>|[^\W_]+|[^\w\s]|_")


class CorpusError(ProrlError):
    """A reference corpus that cannot be used, said in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Documents to compare with. Nothing that is found in a corpus reaches from one document into the next."""

    name: str  # for people
    key: str  # 16 hexadecimal digits, equal for equal content
    documents: Callable[[], Iterable[str]]


def split_words(text: str) -> Iterator[str]:
    """The words of a text: runs of letters and digits, tags, and every other visible character by itself.

    Upper and lower case are the same, and so are the ways in which Unicode spells one character.

    >>> list(split_words("<think>3*8 = 24</think> Done_now!"))
    ['<think>', '3', '*', '8', '=', '24', '</think>', 'done', '_', 'now', '!']
    """
    # No word spans two lines, and all words of a large document at once would take ten times its memory.
    return chain.from_iterable(map(_words_of_line, text.splitlines()))


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


def _words_of_line(line: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFC", line.casefold()))


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
            try:
                if line.strip():
                    yield _field(json.loads(line))
            except ValueError as error:
                raise CorpusError(f"the corpus {path}, line {number}: {error}") from None


def _field(row: Any) -> str:
    text = row.get("text") if isinstance(row, Mapping) else None
    if not isinstance(text, str):
        raise ValueError("a line is a JSON object with a field `text` that is a string")
    return text


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
