"""Partial rollouts: groups that wait for the next step, and how they are kept in a checkpoint (docs/method.md).

A group that waits has responses that have not ended, or has ended and was not needed yet. It is plain data, written
beside policy and optimizer, so a resumed run goes on with the same tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from prorl.envs.mixture import Mixture
from prorl.envs.types import Problem, Verdict
from prorl.rollout.pipeline import ChatRenderer, grouped
from prorl.types import Completion, Group, HParams, Rollout, log_probs, token_ids

IN_HAND = "in_hand.parquet"  # in a checkpoint's folder, where there is something to keep
_HPARAMS = TypeAdapter(HParams)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGroup:
    """A group that waits, and the hyperparameters of the step that drew it."""

    group: Group
    hparams: HParams

    def goes_on_under(self, hparams: HParams, oldest: int) -> bool:
        """Whether a step samples it as it was begun, and no part of it is by a policy before the version `oldest`."""
        group = self.group
        written = (*(rollout.completion for rollout in group.rollouts), *group.unfinished)
        young = all(one.policy_version >= oldest for one in written)
        return young and _sampling(self.hparams) == _sampling(hparams)


class InHand:
    """The groups that wait; saved and restored as the learner is."""

    def __init__(self, tasks: Mixture, renderer: ChatRenderer) -> None:
        self._tasks, self._renderer = tasks, renderer
        self.groups: tuple[OpenGroup, ...] = ()

    def snapshot(self) -> Callable[[Path], None]:
        """The returned function writes what waits now into an existing folder."""
        return partial(_write, self.groups)

    def restore(self, folder: Path) -> int:
        """Take what a snapshot wrote; nothing where there is none.

        Returns how many groups are dropped, as their draws ask something else or another version wrote them.
        """
        kept: list[dict[str, Any]] = []
        if (folder / IN_HAND).exists():
            import pyarrow.parquet as pq

            kept = pq.read_table(folder / IN_HAND).to_pylist()
        found = []
        for draw, rows in grouped(kept, itemgetter("draw")).items():
            try:
                found.append(self._group(draw, rows))
            except (ValueError, KeyError, TypeError):  # another version's, or of a task that is gone
                found.append(None)
        self.groups = tuple(one for one in found if one is not None)
        return len(found) - len(self.groups)

    def _group(self, draw: int, rows: Sequence[dict[str, Any]]) -> OpenGroup | None:
        hparams = _HPARAMS.validate_json(rows[0]["hparams"])
        problem = problem_of(self._tasks, hparams, draw)
        if problem.prompt != rows[0]["prompt"]:
            return None
        rollouts, unfinished = [], []
        for row in rows:
            completion = Completion(
                draw=draw,
                sample=row["sample"],
                tokens=token_ids(memoryview(row["tokens"]).cast("i")),
                logps=log_probs(memoryview(row["logps"]).cast("f")),
                finish=row["finish"],
                policy_version=row["version"],
            )
            if row["verdict"] is None:
                unfinished.append(completion)
                continue
            text, verdict = self._renderer.decode(completion.tokens), Verdict(**row["verdict"])
            rollouts.append(Rollout(completion=completion, text=text, verdict=verdict))
        group = Group(
            draw=draw,
            problem=problem,
            prompt=self._renderer.encode(problem.prompt, problem.history),
            rollouts=tuple(rollouts),
            unfinished=tuple(unfinished),
        )
        return OpenGroup(group=group, hparams=hparams)


def problem_of(tasks: Mixture, hparams: HParams, draw: int) -> Problem:
    """The training problem at a draw of a step with these hyperparameters."""
    return tasks.problem(draw, "train", hparams.mixture, hparams.levels)


def _sampling(hparams: HParams) -> tuple[float, ...]:
    return hparams.samples_per_prompt, hparams.response_limit, hparams.temperature, hparams.top_p


def _write(groups: Sequence[OpenGroup], folder: Path) -> None:
    if not groups:
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, whole = pa.string(), pa.int64()
    verdict_types = {"score": pa.float64(), "status": text, "note": text, "answered": pa.bool_()}
    rows = []
    for one in groups:
        drawn = {"hparams": _HPARAMS.dump_json(one.hparams).decode(), "prompt": one.group.problem.prompt}
        ended = [(rollout.completion, rollout.verdict) for rollout in one.group.rollouts]
        for completion, verdict in [*ended, *((part, None) for part in one.group.unfinished)]:
            row = {
                "draw": completion.draw,
                "sample": completion.sample,
                "tokens": completion.tokens.tobytes(),
                "logps": completion.logps.tobytes(),
                "finish": completion.finish,
                "version": completion.policy_version,
                "verdict": verdict and asdict(verdict),
            }
            rows.append(drawn | row)
    schema = pa.schema(
        {
            **dict.fromkeys(("draw", "sample", "version"), whole),
            **dict.fromkeys(("hparams", "prompt", "finish"), text),
            # As bytes: millions of numbers would take a hundred bytes each on their way.
            **dict.fromkeys(("tokens", "logps"), pa.large_binary()),
            "verdict": pa.struct(verdict_types),
        }
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / IN_HAND)
