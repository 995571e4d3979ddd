"""What the creativity index costs: reading a corpus and searching it for the words of responses.

    python benchmarks/creativity.py [--megabytes 100] [--texts 2000]

The corpus is synthetic: words as frequent as Zipf's law says, in documents of which every tenth repeats a passage of
an earlier one. The texts that are searched are half passages of the corpus and half new ones of the same words.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from prorl.lab.creativity import Lengths, creativity_index, documents_of, longest_matches

VOCABULARY = 200_000
EXPONENT = 1.0  # of Zipf's law
DOCUMENT = 500  # words
PASSAGE = 200  # words that every tenth document repeats
TEXT = 300  # words


class Author:
    """Writes documents of Zipf's words, and repeats itself."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        letters = self._rng.integers(ord("a"), ord("z") + 1, size=(VOCABULARY, 8)).astype(np.uint8)
        lengths = self._rng.integers(2, 9, size=VOCABULARY)
        self._words = [row.tobytes().decode()[:size] for row, size in zip(letters, lengths, strict=True)]
        weights = 1 / np.arange(1, VOCABULARY + 1) ** EXPONENT
        self._bounds = np.cumsum(weights / weights.sum())

    def text(self, size: int) -> str:
        """New text of so many words."""
        ids = np.searchsorted(self._bounds, self._rng.random(size)).clip(max=VOCABULARY - 1)
        return " ".join(map(self._words.__getitem__, ids))

    def documents(self, size: int) -> Iterator[str]:
        """Documents of together `size` bytes."""
        written, number, passage = 0, 0, ""
        while written < size:
            document = self.text(DOCUMENT)
            if number % 10 == 5:
                document = f"{passage} {document}"
            if number % 10 == 0:
                passage = document[: document.index(" ", len(document) * PASSAGE // DOCUMENT)]
            written += len(document)
            number += 1
            yield document


def write_corpus(path: Path, author: Author, size: int, texts: int) -> list[str]:
    """Store a corpus of `size` bytes; some of its passages."""
    passages: list[str] = []
    with path.open("w") as file:
        for document in author.documents(size):
            if len(passages) < texts:
                passages.append(" ".join(document.split(" ")[100 : 100 + TEXT]))
            file.write(json.dumps({"text": document}) + "\n")
    return passages


def mean_index(found: Sequence[NDArray[np.int64]]) -> float:
    return fmean(creativity_index(matches, Lengths()) for matches in found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what the creativity index costs")
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--texts", type=int, default=2000)
    options = parser.parse_args(arguments)
    author = Author(seed=0)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.jsonl")
        copied = write_corpus(corpus, author, round(options.megabytes * 1e6), options.texts // 2)
        fresh = [author.text(TEXT) for _ in range(len(copied))]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin, busy = time.perf_counter(), time.process_time()
        found, _, words = longest_matches(copied + fresh, documents_of([corpus]))
        clock, computing = time.perf_counter() - begin, time.process_time() - busy
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    searched = sum(matches.size for matches in found)
    rows = (
        ("corpus", f"{options.megabytes:g} MB, {words:,} words"),
        ("texts", f"{len(found):,}, together {searched:,} words"),
        ("search", f"{clock:.1f} s ({computing:.1f} s of computing)"),
        ("memory at most (before)", f"{peak / 1e3:.0f} MB ({before / 1e3:.0f} MB)"),
        ("mean index of copied texts", f"{mean_index(found[: len(copied)]):.3f}"),
        ("mean index of new texts", f"{mean_index(found[len(copied) :]):.3f}"),
    )
    print("| what | |\n| --- | ---: |")
    for what, value in rows:
        print(f"| {what} | {value} |")


if __name__ == "__main__":
    main()
