"""Prepares the data sets of a recipe: read once, clean, convert, store. Training then needs no hub.

Invariant: what is prepared is a function of the requests and of the data they name. A source is redone only when
its request, its data, this code's version or the evaluation sets beside it change; each is stored as a whole.

Splits: an evaluation set is `test` and nothing else, since exams steer the run and benchmark items must not
(METHOD §8). Of a training set a hash of the question puts 5 % into `exam` and 5 % into `test`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from prorl.envs.base import canonical
from prorl.envs.datasets.catalogue import VERSION, DataError, Drop, Prepared, Source, SourceRequest, resolve
from prorl.envs.datasets.convert import convert
from prorl.envs.datasets.read import local_files, published_at, read
from prorl.envs.datasets.store import (
    StoredRow,
    StoredRows,
    file_of,
    read_manifest,
    write_manifest,
    write_rows,
)
from prorl.envs.files import sha256
from prorl.envs.grading import check_gold
from prorl.envs.seeds import derive
from prorl.envs.types import Split
from prorl.envs.verifiers.programs import OwnSandbox, Runner
from prorl.envs.verifiers.published_checkers import require_installed

BUCKETS = 20  # 5 % each
PROGRESS_EVERY = 500  # rows
EXAMPLE_CHARS = 160  # of a dropped row
OVERLAP_WORDS = 13  # as GPT-3's and most later decontaminations; 0 switches it off
SHARED_BY = 4  # evaluation questions that may share a passage before it counts as boilerplate

_WORD = re.compile(r"\w+")

Progress = Callable[[str, int], None]
"""Told the name of a source and how many of its rows have been read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """What became of one source."""

    name: str
    use: Literal["train", "evaluation"]
    rows: int  # read
    kept: Mapping[str, int]  # split → rows
    dropped: Mapping[str, int]  # reason → rows
    examples: Mapping[str, str]  # reason → number and beginning of the first row dropped for it
    redone: bool  # False: it was prepared before and nothing has changed

    def lines(self) -> list[str]:
        """The report in one line, and one for every reason to drop a row, with the first such row."""
        return [self.line(), *(f"  {reason}: {self.examples[reason]}" for reason in sorted(self.dropped))]

    def line(self) -> str:
        """The report in one line."""
        kept = ", ".join(f"{split} {count:,}" for split, count in sorted(self.kept.items()))
        reasons = sorted(self.dropped.items(), key=lambda item: (-item[1], item[0]))
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in reasons)
        state = "" if self.redone else " (unchanged)"
        return f"{self.name}: {self.rows:,} rows; kept {kept}; dropped {dropped or 'none'}{state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of all sources, in the order of the requests."""

    folder: Path
    sources: tuple[SourceReport, ...]

    def lines(self) -> list[str]:
        """The report for people."""
        lines = [line for source in self.sources for line in source.lines()]
        uses = {source.use for source in self.sources}
        if uses == {"train"}:
            lines.append("no evaluation set is listed: overlap with them was not looked for")
        return lines


def prepare(
    requests: Sequence[SourceRequest],
    folder: Path,
    progress: Progress,
    *,
    run: Runner | None = None,
    overlap_words: int = OVERLAP_WORDS,
) -> Report:
    """Prepare every requested source into `folder`, evaluation sets first, and say what was kept and dropped.

    `run` is a sandbox for rows that must be opened in one; by default one is opened when the first needs it.
    `overlap_words` is the length of a passage that a training question must not share with an evaluation set.

    Raises:
        DataError: a source cannot be had or gives not one row; those before it stay prepared.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sandbox = run or OwnSandbox()
    sources = {request.name: resolve(request) for request in requests}
    ordered = sorted(requests, key=lambda request: sources[request.name].use != "evaluation")
    reports: dict[str, SourceReport] = {}
    overlap = Overlap(overlap_words)
    beside: list[str] = []  # hashes of the evaluation sets
    for request in ordered:
        source = sources[request.name]
        training = source.use == "train"
        fingerprint = _fingerprint(source, request, [str(overlap_words), *beside] if training else [])
        rows = _Rows(source, request, sandbox, overlap if training else Overlap(0), progress)
        reports[source.name] = _up_to_date(folder, source, fingerprint) or _store(folder, rows, fingerprint)
        if not training:
            beside.append(sha256(file_of(folder, source.name)))
            for question in StoredRows(file_of(folder, source.name)).questions():
                overlap.add(question)
    return Report(folder=folder, sources=tuple(reports[request.name] for request in requests))


def describe_needs(requests: Sequence[SourceRequest], folder: Path) -> list[str]:
    """One line per source: what it is, where it would come from, its size and licence, and whether it is prepared.

    Raises:
        DataError: a request that means no source.
    """
    return [_need(resolve(request), request, folder) for request in requests]


def require_prepared(requests: Sequence[SourceRequest], folder: Path, recipe: str = "RECIPE") -> None:
    """See that every requested source is prepared as it is asked for now; the original data need not be there.

    `recipe` is how the user says it, for the sentence about what is missing.

    Raises:
        DataError: one is not, or was prepared with other settings.
        MissingCheckersError: one is graded by checkers that are not installed.
    """
    for request in requests:
        if (layout := resolve(request).layout) in ("ifeval", "ifbench"):
            require_installed(layout)
    missing = [request.name for request in requests if not _is_prepared(resolve(request), request, folder)]
    if missing:
        raise DataError(
            f"{', '.join(missing)}: not prepared in {folder} as this recipe asks: `prorl data prepare {recipe}` first"
        )


def split_of(source: Source, question: str) -> Split:
    """The split that a question belongs to."""
    if source.use == "evaluation":
        return "test"
    bucket = derive("data split", canonical(question)) % BUCKETS
    return "exam" if bucket == 0 else "test" if bucket == 1 else "train"


class Duplicates:
    """The questions of one source seen so far."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def check(self, question: str) -> None:
        """Take note of a question.

        Raises:
            Drop: it was there before, case and white space aside.
        """
        digest = _digest(canonical(question))
        if digest in self._seen:
            raise Drop("duplicate")
        self._seen.add(digest)


class Overlap:
    """The passages of the evaluation questions: every run of so many words."""

    def __init__(self, words: int) -> None:
        """`words` is the length of a passage; 0 finds no overlap at all."""
        self._words = words
        self._owners: Counter[bytes] = Counter()

    def add(self, question: str) -> None:
        """Take note of an evaluation question."""
        self._owners.update(set(self._passages(question)))

    def check(self, question: str) -> None:
        """Compare a training question with all evaluation questions.

        A passage that more than `SHARED_BY` of them share is boilerplate ("The first line contains an integer …")
        and proves nothing. Questions shorter than a passage must be the same as a whole.

        Raises:
            Drop: it shares a passage with one.
        """
        if any(1 <= self._owners[passage] <= SHARED_BY for passage in self._passages(question)):
            raise Drop("overlaps an evaluation set")

    def _passages(self, question: str) -> Iterator[bytes]:
        if not self._words:
            return
        words = _WORD.findall(question.lower())
        for start in range(max(1, len(words) - self._words + 1)):
            yield _digest(" ".join(words[start : start + self._words]))


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


class _Rows:
    """The usable rows of one source, counted while they pass."""

    def __init__(
        self, source: Source, request: SourceRequest, run: Runner, overlap: Overlap, progress: Progress
    ) -> None:
        self.source = source
        self.kept: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.read = 0
        self.request = request
        self._run, self._overlap, self._progress = run, overlap, progress

    def __iter__(self) -> Iterator[StoredRow]:
        duplicates = Duplicates()
        for number, cells in read(self.source, self.request):
            self.read += 1
            if self.read % PROGRESS_EVERY == 0:
                self._progress(self.source.name, self.read)
            try:
                row = self._row(cells, duplicates)
            except Drop as drop:
                self.dropped[str(drop)] += 1
                shown = _beginning(drop.row or str(cells))
                self.examples.setdefault(str(drop), f"row {number}, {shown}")
                continue
            self.kept[row.split] += 1
            yield row
        self._progress(self.source.name, self.read)

    def _row(self, cells: Mapping[str, Any] | Drop, duplicates: Duplicates) -> StoredRow:
        if isinstance(cells, Drop):
            raise cells
        prepared = convert(self.source.layout, cells, self._run)
        key = _key(prepared)
        duplicates.check(prepared.question)
        self._overlap.check(prepared.question)
        check_gold(prepared.payload, prepared.prompt)
        return StoredRow(key=key, split=split_of(self.source, prepared.question), prepared=prepared)


def _store(folder: Path, rows: _Rows, fingerprint: str) -> SourceReport:
    name = rows.source.name
    path = file_of(folder, name)
    try:
        count = write_rows(path, rows.source.domain, rows)
        if not count:
            reasons = ", ".join(f"{reason} ({times})" for reason, times in rows.dropped.most_common(3))
            first = next((f"; {example}" for example in rows.examples.values()), "")
            raise DataError(
                f"{name}: none of its {rows.read} rows can be used: {reasons or 'it is empty'}{first}"
            )
    except BaseException:
        _forget(folder, name)
        raise
    entry = {
        "asked": _asked(rows.source, rows.request),
        "fingerprint": fingerprint,
        "sha256": sha256(path),
        "rows": rows.read,
        "kept": dict(rows.kept),
        "dropped": dict(rows.dropped),
        "examples": rows.examples,
    }
    write_manifest(folder, {**read_manifest(folder), name: entry})
    return _report(rows.source, entry, redone=True)


def _forget(folder: Path, name: str) -> None:
    """What could not be redone is gone, rather than stale."""
    manifest = read_manifest(folder)
    if manifest.pop(name, None) is not None:
        write_manifest(folder, manifest)
    with suppress(FileNotFoundError):
        file_of(folder, name).unlink()


def _up_to_date(folder: Path, source: Source, fingerprint: str) -> SourceReport | None:
    entry = read_manifest(folder).get(source.name)
    path = file_of(folder, source.name)
    if entry is None or entry["fingerprint"] != fingerprint or not path.exists():
        return None
    return _report(source, entry, redone=False) if sha256(path) == entry["sha256"] else None


def _report(source: Source, entry: Mapping[str, Any], *, redone: bool) -> SourceReport:
    return SourceReport(
        name=source.name,
        use=source.use,
        rows=entry["rows"],
        kept=entry["kept"],
        dropped=entry["dropped"],
        examples=entry["examples"],
        redone=redone,
    )


def _fingerprint(source: Source, request: SourceRequest, beside: Sequence[str]) -> str:
    """Identity of everything that a source's rows depend on; of local files the content, not the name."""
    content = [sha256(file) for file in local_files(Path(request.path))] if request.path is not None else []
    return _hash([_asked(source, request), content, list(beside)])


def _asked(source: Source, request: SourceRequest) -> str:
    """Identity of what is asked for; a local path counts only as such, since files move."""
    settings = replace(request, path="local" if request.path is not None else None)
    return _hash([VERSION, source, settings])


def _hash(facts: Any) -> str:
    return blake2b(json.dumps(facts, sort_keys=True, default=_plain).encode(), digest_size=16).hexdigest()


def _plain(value: Any) -> Any:
    """What JSON does not know of our records."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(value) if isinstance(value, Mapping) else sorted(value)


def _key(prepared: Prepared) -> str:
    """The hash of all that a row says.

    Raises:
        Drop: a text that UTF-8 cannot write, and so no file either.
    """
    content = json.dumps(prepared, sort_keys=True, ensure_ascii=False, default=_plain)
    try:
        return blake2b(content.encode(), digest_size=8).hexdigest()
    except UnicodeEncodeError:
        raise Drop("half a surrogate pair or bytes that are no UTF-8") from None


def _beginning(text: str) -> str:
    """The beginning of a row in one line that any terminal can print."""
    line = " ".join(text[: 2 * EXAMPLE_CHARS].encode("utf-8", "backslashreplace").decode().split())
    line = "".join(char if char.isprintable() else "\ufffd" for char in line)
    return line if len(line) <= EXAMPLE_CHARS else line[:EXAMPLE_CHARS] + "…"


def _need(source: Source, request: SourceRequest, folder: Path) -> str:
    rows = f"{source.rows:,} rows as published" if source.rows else "rows not counted"
    if request.limit is not None:
        rows += f", at most {request.limit:,} of them read"
    place = f"from {request.path}" if request.path is not None else f"from the hub, {published_at(source)}"
    gate = ", gated" if source.gated and request.path is None else ""
    note = f" ({source.note})" if source.note else ""
    state = "prepared" if _is_prepared(source, request, folder) else "not prepared"
    what = f"{source.name} [{source.domain}, {source.use}]"
    return f"{what} {place}; {rows}; licence {source.licence}{gate}; {state}{note}"


def _is_prepared(source: Source, request: SourceRequest, folder: Path) -> bool:
    entry = read_manifest(folder).get(source.name, {})
    return entry.get("asked") == _asked(source, request) and file_of(folder, source.name).exists()
