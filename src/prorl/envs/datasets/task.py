"""A prepared data set as a task: problems are rows, and the judge looks up by itself what it needs to judge them.

Invariant: a problem carries the number and the hash of its row, never its tests, which may be megabytes. Every
process has its own view of the same file; where it is no longer the same, the verdict is an error and no score.
"""

from __future__ import annotations

from pathlib import Path

from prorl.envs.datasets.judging import judge
from prorl.envs.datasets.store import StoredRows, file_of
from prorl.envs.types import Problem, Split, Verdict
from prorl.envs.verifiers.programs import OwnSandbox, Runner


class DatasetTask:
    """The rows of one source that `prepare` has stored."""

    pass_threshold = 1.0  # of code and instructions too: all tests passed, all instructions followed
    ladder: tuple[int, ...] = ()

    def __init__(self, name: str, folder: Path) -> None:
        """The source called `name` among those prepared into `folder`; it is opened at first use.

        Raises:
            DataError: it has not been prepared.
        """
        self.name = name
        self._stored = StoredRows(file_of(folder, name))
        self._run: Runner = OwnSandbox()

    @property
    def domain(self) -> str:
        """The domain it is averaged into."""
        return self._stored.domain

    @property
    def splits(self) -> frozenset[Split]:
        """The splits that have rows."""
        return frozenset(self._stored.rows_of)

    def use_sandbox(self, run: Runner) -> None:
        """Run programs with `run` from now on, in place of a sandbox of its own."""
        self._run = run

    def row_count(self, split: Split) -> int:
        """How many different problems a split has."""
        return len(self._stored.rows_of.get(split, ()))

    def problem(self, index: int, split: Split) -> Problem:
        """The row at `index` of `split`, over and over again.

        Raises:
            ValueError: the split has no rows.
        """
        rows = self._stored.rows_of.get(split)
        if rows is None:
            raise ValueError(f"task {self.name} has no {split} problems")
        row = rows[index % len(rows)].as_py()
        return Problem(
            task=self.name,
            domain=self.domain,
            index=index,
            split=split,
            level=0,
            prompt=self._stored.prompt(row),
            payload={"row": row, "key": self._stored.key(row)},
            witness=self._stored.witness(row),
        )

    def rung(self, index: int, level: int) -> Problem:
        """Rows have no difficulty.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"task {self.name} has no level {level}: a data set has no ladder")

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Judge a response by the row that the problem came from."""
        row = problem.payload["row"]
        if self._stored.key(row) != problem.payload["key"]:
            note = "the prepared data changed: prepare it again and start the run anew"
            return Verdict(score=0.0, status="error", note=note)
        return judge(self._stored.payload(row), problem.prompt, text, self._run)
