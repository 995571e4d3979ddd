"""Prepared rows on disk, one Parquet file per source, and a data set as a task.

Invariants: a file is whole or not there. Prompts of a file fit into memory, its tests may not: payloads are read one
row group at a time. A problem carries the number and the hash of its row, never its tests, which may be megabytes:
every process reads the same file, and where that has changed, the verdict is an error and no score.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prorl.envs.datasets.catalogue import DataError
from prorl.envs.files import replacing
from prorl.envs.grading import judge
from prorl.envs.types import Problem, Solution, Split, Verdict
from prorl.envs.verifiers.programs import OwnSandbox, Runner

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

ROWS_PER_GROUP = 64  # what one look-up of a payload decodes
ABOUT = b"prorl.about"  # key of the file's own metadata
COLUMNS = ("key", "split", "question", "prompt", "payload", "solution")


def file_of(folder: Path, name: str) -> Path:
    """Where a source's rows lie."""
    return folder / f"{name}.parquet"


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


def read_about(path: Path, *, whole: bool = False) -> dict[str, Any]:
    """What `write_rows` stored about the rows of a file; empty where there is no such file.

    `whole`: also where a page of it does not have the content that was written.
    """
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
            for _ in file.iter_batches() if whole else ():
                pass
            return dict(json.loads(file.metadata.metadata[ABOUT]))
    except (OSError, ValueError, KeyError, TypeError):  # pyarrow's errors are these, too
        return {}


class DatasetTask:
    """The rows of one source that `prepare` has stored; the file is opened when it is first asked for."""

    pass_threshold = 1.0  # of code and instructions too: all tests passed, all instructions followed
    all_levels: tuple[int, ...] = ()

    def __init__(self, name: str, folder: Path) -> None:
        """The source called `name` among those prepared into `folder`.

        Raises:
            DataError: it has not been prepared.
        """
        self.name = name
        self._path = file_of(folder, name)
        if not self._path.exists():
            raise DataError(f"{self._path} is missing: prepare it first, `prorl data prepare RECIPE`")
        self._run: Runner = OwnSandbox()
        self._group: tuple[int, list[str]] = (-1, [])

    @cached_property
    def domain(self) -> str:
        """The domain it is averaged into."""
        return str(json.loads(self._file.metadata.metadata[ABOUT])["domain"])

    @property
    def splits(self) -> frozenset[Split]:
        """The splits that have rows."""
        return frozenset(self._rows_of)

    def use_sandbox(self, run: Runner) -> None:
        """Run programs with `run` from now on, in place of a sandbox of its own."""
        self._run = run

    def row_count(self, split: Split) -> int:
        """How many different problems a split has."""
        return len(self._rows_of.get(split, ()))

    def questions(self) -> Iterator[str]:
        """All questions, in order."""
        for batch in self._file.iter_batches(columns=["question"]):
            yield from batch["question"].to_pylist()

    def problem(self, index: int, split: Split) -> Problem:
        """The row at `index` modulo the number of rows; `ValueError` where the split has none."""
        rows = self._rows_of.get(split)
        if rows is None:
            raise ValueError(f"task {self.name} has no {split} problems")
        row = rows[index % len(rows)].as_py()
        solution = self._shown["solution"][row].as_py()
        return Problem(
            task=self.name,
            domain=self.domain,
            index=index,
            split=split,
            level=0,
            prompt=str(self._shown["prompt"][row].as_py()),
            payload={"row": row, "key": self._keys[row].as_py()},
            solution=None if solution is None else Solution(**json.loads(solution)),
        )

    def problem_at(self, index: int, level: int) -> Problem:
        """Rows have no levels: always a `ValueError`."""
        raise ValueError(f"task {self.name} has no level {level}: a data set has no levels")

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
        return judge(json.loads(self._group[1][offset]), problem.prompt, text, self._run)

    @cached_property
    def _file(self) -> ParquetFile:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import ParquetFile

        try:
            return ParquetFile(self._path, memory_map=True)
        except ArrowInvalid as error:
            raise DataError(f"{self._path} is damaged ({error}): delete it and prepare it again") from error

    @cached_property
    def _rows_of(self) -> Mapping[Split, Any]:
        """Split → the numbers of its rows, as an arrow array; splits without rows are missing."""
        import pyarrow.compute as compute

        splits = self._file.read(columns=["split"])["split"].combine_chunks()
        return {
            split: compute.indices_nonzero(compute.equal(splits, split))
            for split in compute.unique(splits).to_pylist()
        }

    @cached_property
    def _keys(self) -> Any:
        return self._file.read(columns=["key"])["key"]

    @cached_property
    def _shown(self) -> Any:
        """What problems are made of; whoever only judges never loads it."""
        return self._file.read(columns=["prompt", "solution"])
