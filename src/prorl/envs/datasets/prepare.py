"""Prepares the data sets of a recipe: read once, clean, convert, store; then each is a task. Training needs no hub.

Invariant: what is prepared is a function of the requests and of the data they name. A source is redone only when
its request, its data, this code's version or the evaluation sets beside it change; each is stored as a whole.

Splits: an evaluation set is `test` and nothing else, since validations steer the run and benchmark items must not
(docs/data.md). Of a training set a hash of the question puts 5 % into `validation` and 5 % into `test`.

Prompts of a file fit into memory, its tests may not: payloads are read one row group at a time. A problem carries the
number and the hash of its row, never its tests, which may be megabytes: every process reads the same file, and where
that has changed, the verdict is an error and no score.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from prorl.envs.base import FixedTask, canonical
from prorl.envs.datasets.catalogue import VERSION, DataError, Drop, SourceRequest, read, resolve
from prorl.envs.datasets.convert import Prepared, convert, history_of
from prorl.envs.extensions import Extension, load_reward
from prorl.envs.files import replacing, sha256
from prorl.envs.grading import check_gold, judge
from prorl.envs.seeds import derive
from prorl.envs.types import Problem, Solution, Split, Verdict, conversation
from prorl.envs.verifiers.programs import OwnSandbox, Runner
from prorl.envs.verifiers.published_checkers import Benchmark, require_installed

BUCKETS: Mapping[int, Split] = {0: "validation", 1: "test"}  # of 20, 5 % each; the others are trained on
PROGRESS_EVERY = 500  # rows
EXAMPLE_CHARS = 160  # of a dropped row
OVERLAP_WORDS = 13  # a passage, as GPT-3's and most later decontaminations have it
SHARED_BY = 4  # evaluation questions that may share a passage before it counts as boilerplate
ENOUGH_ROWS = 20  # whose right option has the same letter, to know that it is no chance
ROWS_PER_GROUP = 64  # of a file: what one look-up of a payload decodes
ABOUT = b"prorl.about"  # key of the file's own metadata
COLUMNS = ("key", "split", "question", "prompt", "payload", "solution", "history")
SHOWN = ("prompt", "solution", "history")

_WORD = re.compile(r"\w+")

Progress = Callable[[str, int], None]
"""Is told the name of a source and how many of its rows have been read."""


@dataclass(slots=True, kw_only=True)
class SourceReport:
    """What became of one source; counted while its rows pass."""

    name: str
    use: Literal["train", "evaluation"]
    redone: bool = True  # False: it was prepared before and nothing has changed
    kept: Counter[Split] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)  # reason → rows
    examples: dict[str, str] = field(default_factory=dict)  # reason → number and beginning of the first row

    @property
    def rows(self) -> int:
        """How many were read."""
        return self.kept.total() + self.dropped.total()


def prepare(
    requests: Sequence[SourceRequest], folder: Path, progress: Progress, *, run: Runner | None = None
) -> tuple[SourceReport, ...]:
    """Prepare every requested source into `folder`, evaluation sets first; what was kept and dropped, as requested.

    `progress` is told the name of a source and how many of its rows have been read. `run` is a sandbox for rows that
    must be opened in one; by default one is opened when the first needs it. Raises DataError: a source cannot be had
    or gives not one row; those before it stay prepared.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run = run or OwnSandbox()
    reports: dict[str, SourceReport] = {}
    passages: Counter[bytes] = Counter()  # of the evaluation questions
    beside: list[str] = []  # hashes of the evaluation sets
    for request in sorted(requests, key=lambda request: resolve(request).use != "evaluation"):
        source, path = resolve(request), file_of(folder, request)
        training = source.use == "train"
        # Whatever the rows depend on; of local files the content, not the name.
        others = [str(OVERLAP_WORDS), *beside] if training else []
        fingerprint = _hash([_asked(request), request.content, others])
        report, stored = SourceReport(name=source.name, use=source.use), read_about(path, whole=True)
        if stored.get("fingerprint") == fingerprint:
            report.redone, report.examples = False, stored["examples"]
            report.kept.update(stored["kept"])
            report.dropped.update(stored["dropped"])
        else:
            _require_ours(path)
            path.unlink(missing_ok=True)  # what cannot be redone is gone, rather than stale
            about = {"domain": source.domain, "asked": _asked(request), "fingerprint": fingerprint}
            counts = {"kept": report.kept, "dropped": report.dropped, "examples": report.examples}
            write_rows(path, _usable_rows(request, run, passages, progress, report), about | counts)
        reports[source.name] = report
        if not training:
            beside.append(sha256(path))
            for question in DatasetTask(source.name, path).questions():
                passages.update(set(passages_of(question)))
    return tuple(reports[request.name] for request in requests)


def describe_needs(requests: Sequence[SourceRequest], folder: Path) -> list[str]:
    """One line per source: what it is, where it would come from, its size and licence, and whether it is prepared.

    Raises DataError: a request that means no source.
    """
    lines = []
    for request in requests:
        source, local = resolve(request), request.local
        rows = f"{source.rows:,} rows as published" if source.rows else "rows not counted"
        if request.limit is not None:
            rows += f", at most {request.limit:,} of them read"
        place = f"from {request.path}" if local else f"from the hub, {source.published}"
        gate = ", gated" if source.gated and not local else ""
        lacking = "there is no such file or folder" if local and not local.exists() else "not prepared"
        state = lacking if missing([request], folder) else "prepared"
        lines.append(
            f"{source.name} [{source.domain}, {source.use}] {place}; {rows}; licence {source.licence}{gate}; {state}"
            + (f" ({source.note})" if source.note else "")
        )
    return lines


def require_prepared(requests: Sequence[SourceRequest], folder: Path, recipe: str = "RECIPE") -> None:
    """See that every requested source is prepared as it is asked for now; the original data need not be there.

    `recipe` is how the user says it, for the sentence about what is missing. Raises DataError: one is not, or was
    prepared with other settings; MissingCheckersError: one is graded by checkers that are not installed.
    """
    layouts = {resolve(request).layout for request in requests}
    for benchmark in get_args(Benchmark):
        if benchmark in layouts:
            require_installed(benchmark)
    if absent := missing(requests, folder):
        raise DataError(
            f"{', '.join(absent)}: not prepared in {folder} as this recipe asks: `prorl data prepare {recipe}` first"
        )


def missing(requests: Sequence[SourceRequest], folder: Path) -> list[str]:
    """The names of those sources that are not prepared as they are asked for now."""
    return [one.name for one in requests if read_about(file_of(folder, one)).get("asked") != _asked(one)]


def passages_of(question: str) -> Iterator[bytes]:
    """Hashes of every run of `OVERLAP_WORDS` words of a question; of all its words where it has no more."""
    words = _WORD.findall(question.lower())
    for start in range(max(1, len(words) - OVERLAP_WORDS + 1)):
        yield _digest(" ".join(words[start : start + OVERLAP_WORDS]))


def overlaps(question: str, passages: Counter[bytes]) -> bool:
    """Whether a training question shares a passage with the evaluation questions whose passages were counted.

    A passage that more than `SHARED_BY` of them share is boilerplate ("The first line contains an integer …") and
    proves nothing. Questions shorter than a passage must be the same as a whole.
    """
    return any(1 <= passages[passage] <= SHARED_BY for passage in passages_of(question))


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _usable_rows(
    request: SourceRequest, run: Runner, passages: Counter[bytes], progress: Progress, report: SourceReport
) -> Iterator[dict[str, str | None]]:
    """The usable rows of one source as the file holds them, counted in `report` while they pass."""
    layout, seen = resolve(request).layout, set[bytes]()
    letters: set[str] = set()  # of right options
    for number, cells in read(request):
        if report.rows % PROGRESS_EVERY == 0:
            progress(report.name, report.rows)
        try:
            if isinstance(cells, Drop):
                raise cells
            prepared = convert(layout, cells, run)
            if request.own:  # system prompts of the catalogue's sets are of their makers' own systems
                prepared = replace(prepared, history=history_of(cells["prompt"]))
            key, asked = _key(prepared), canonical(conversation(prepared.history, prepared.question))
            if (question := _digest(asked)) in seen:
                raise Drop("duplicate")
            seen.add(question)
            if report.use == "train" and overlaps(prepared.question, passages):
                raise Drop("overlaps an evaluation set")
            check_gold(prepared.payload, prepared.prompt)
        except Drop as drop:
            report.dropped[str(drop)] += 1
            report.examples.setdefault(str(drop), f"row {number}, {_beginning(drop.row or str(cells))}")
            continue
        bucket, known = derive("data split", asked) % 20, prepared.solution
        split = "test" if report.use == "evaluation" else BUCKETS.get(bucket, "train")
        report.kept[split] += 1
        letters.add(prepared.payload["gold"] if prepared.payload["kind"] == "choice" else "")
        yield {
            "key": key,
            "split": split,
            "question": prepared.question,
            "prompt": prepared.prompt,
            "payload": json.dumps(prepared.payload),
            "solution": json.dumps(asdict(known)) if known else None,
            "history": json.dumps(prepared.history) if prepared.history else None,
        }
    progress(report.name, report.rows)
    if report.kept.total() >= ENOUGH_ROWS and len(letters) == 1 and letters != {""}:
        raise DataError(
            f"{report.name}: the right option is {letters.pop()} in all of its {report.kept.total()} rows, which "
            "a policy learns without reading them: shuffle the options of each row"
        )
    if not report.kept:
        reasons = ", ".join(f"{reason} ({times})" for reason, times in report.dropped.most_common(3))
        first = next((f"; {example}" for example in report.examples.values()), "")
        raise DataError(
            f"{report.name}: none of its {report.rows} rows can be used: {reasons or 'it is empty'}{first}"
        )


def _asked(request: SourceRequest) -> str:
    """Identity of what is asked for; a local path counts only as such, since files move, and its rows do not."""
    settings = replace(request, path="local", revision=None) if request.local else request
    return _hash([VERSION, asdict(resolve(request)), asdict(settings)])


def _hash(facts: Any) -> str:
    return blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _key(prepared: Prepared) -> str:
    """The hash of all that a row says. Raises Drop: what no file of ours can hold."""
    try:
        content = json.dumps(asdict(prepared), sort_keys=True, ensure_ascii=False)
        return blake2b(content.encode(), digest_size=8).hexdigest()
    except UnicodeEncodeError:
        raise Drop("half a surrogate pair or bytes that are no UTF-8") from None
    except RecursionError:
        raise Drop("cells nested too deeply") from None
    except TypeError:
        raise Drop("cells of a type that JSON does not have") from None


def _beginning(text: str) -> str:
    """The beginning of a row in one line that any terminal can print."""
    line = " ".join(text[: 2 * EXAMPLE_CHARS].encode("utf-8", "backslashreplace").decode().split())
    line = "".join(char if char.isprintable() else "\ufffd" for char in line)
    return line if len(line) <= EXAMPLE_CHARS else line[:EXAMPLE_CHARS] + "…"


# One Parquet file per source, whole or not there, and its rows as a task


def file_of(folder: Path, request: SourceRequest) -> Path:
    """Where a source's rows lie: local ones by their content, if it is said, lest those of a run be replaced."""
    content = f".{request.revision}" if request.local and request.revision else ""
    return folder / f"{request.name}{content}.parquet"


def write_rows(path: Path, rows: Iterable[Mapping[str, str | None]], about: Mapping[str, Any]) -> None:
    """Write rows (a cell for each of `COLUMNS`) as they come, and `about` them what it holds once all have come.

    `path` appears when all of it is on disk.
    """
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    schema = pyarrow.schema([(name, pyarrow.string()) for name in COLUMNS])
    options = {"compression": "zstd", "write_page_checksum": True}
    with replacing(path) as temporary, ParquetWriter(temporary, schema, **options) as file:
        stream = iter(rows)
        while group := list(islice(stream, ROWS_PER_GROUP)):
            file.write_table(pyarrow.Table.from_pylist(group, schema=schema))
        file.add_key_value_metadata({ABOUT: json.dumps(about)})


def _require_ours(path: Path) -> None:
    """Raise DataError where a file that somebody else wrote is in the place of a source's."""
    from pyarrow.parquet import ParquetFile

    with suppress(OSError, ValueError), ParquetFile(path) as file:  # a damaged one is ours
        if ABOUT not in (file.metadata.metadata or {}) and file.schema_arrow.names != list(COLUMNS):
            raise DataError(
                f"{path} is no prepared data, nor may it be replaced: say another folder, data=FOLDER"
            )


def read_about(path: Path, *, whole: bool = False) -> dict[str, Any]:
    """What `write_rows` stored about the rows of a file; empty where there is no such file.

    `whole`: also where a page of it does not have the content that was written.
    """
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
            for _ in file.iter_batches() if whole else ():
                pass
            if file.schema_arrow.names != list(COLUMNS):
                return {}
            return dict(json.loads(file.metadata.metadata[ABOUT]))
    except (OSError, ValueError, KeyError, TypeError):  # pyarrow's errors are these, too
        return {}


class DatasetTask(FixedTask):
    """The rows of one source that `prepare` has stored, each by its number in the file."""

    def __init__(self, name: str, path: Path, own: Extension | None = None) -> None:
        """The source called `name`, by its prepared file; `own` is the function that judges its rows.

        Raises DataError: it has not been prepared, or the file is damaged or somebody else's.
        """
        from pyarrow import ArrowInvalid, compute
        from pyarrow.parquet import ParquetFile

        _require_ours(path)
        try:
            self._file = ParquetFile(path, memory_map=True)
        except FileNotFoundError:
            raise DataError(f"{path} is missing: prepare it first, `prorl data prepare RECIPE`") from None
        except ArrowInvalid as error:
            raise DataError(f"{path} is damaged ({error}): delete it and prepare it again") from error
        self._own = own
        self.run_program: Runner = OwnSandbox()
        self._group: tuple[int, list[str]] = (-1, [])
        splits = self._file.read(columns=["split"])["split"].combine_chunks()
        rows = {
            split: compute.indices_nonzero(compute.equal(splits, split))
            for split in compute.unique(splits).to_pylist()
        }
        super().__init__(name, json.loads(self._file.metadata.metadata[ABOUT])["domain"], rows)

    @cached_property
    def fingerprint(self) -> str:
        """Identity of all its rows, right answers included."""
        return blake2b("".join(self._keys.to_pylist()).encode(), digest_size=8).hexdigest()

    def questions(self) -> Iterator[str]:
        """All questions, in order."""
        for batch in self._file.iter_batches(columns=["question"]):
            yield from batch["question"].to_pylist()

    def ask(self, key: Any) -> dict[str, Any]:
        """What a row shows, and its number and hash."""
        row = key.as_py()
        prompt, solution, history = (self._shown[name][row].as_py() for name in SHOWN)
        return {
            "prompt": prompt,
            "payload": {"row": row, "key": self._keys[row].as_py()},
            "solution": None if solution is None else Solution(**json.loads(solution)),
            "history": () if history is None else tuple((role, said) for role, said in json.loads(history)),
        }

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Judge a response by the row that the problem came from."""
        row = problem.payload["row"]
        if not 0 <= row < len(self._keys) or self._keys[row].as_py() != problem.payload["key"]:
            note = "the prepared data changed: prepare it again and start the run anew"
            return Verdict(score=0.0, status="error", note=note)
        number, offset = divmod(row, ROWS_PER_GROUP)
        if self._group[0] != number:  # the group is kept, as the samples of a problem are judged together
            column = self._file.read_row_group(number, columns=["payload"])["payload"]
            self._group = (number, column.to_pylist())
        payload = json.loads(self._group[1][offset])
        if self._own is not None:
            return load_reward(self._own)(text, payload["row"], payload["gold"])
        return judge(payload, problem.prompt, text, self.run_program)

    @cached_property
    def _keys(self) -> Any:
        return self._file.read(columns=["key"])["key"]

    @cached_property
    def _shown(self) -> Any:
        """What problems are made of; whoever only judges never loads it."""
        return self._file.read(columns=list(SHOWN))
