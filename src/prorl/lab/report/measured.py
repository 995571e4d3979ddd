"""Did it work? By the fairest judge: a study of base and trained model on problems that nothing steers by.

Reads Parquet, so it is no part of what a dashboard holds in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prorl.envs.files import StorageError
from prorl.lab.evals.comparison import Comparison, Difference, Move, compare, paired
from prorl.lab.evals.evaluation_store import BASE, SLIM, Study, read_study, step_of, studies
from prorl.lab.report.markup import fold, paragraph, remark, table
from prorl.lab.report.moved import problems_moved
from prorl.lab.report.words import percent, points
from prorl.rollout.validation import Part

TITLES: Sequence[tuple[Part, str]] = (("test", "held-out problems"), ("ood", "out-of-domain problems"))


def measured(folder: Path) -> str:
    """What a run's best study says of its newest checkpoint against the base, as safe HTML."""
    try:
        pairs = [pair for pair in map(_pair, (paths for _, paths in studies(folder))) if pair is not None]
    except StorageError as error:
        return remark(f"A study cannot be read: {error}.", "warn")
    if not pairs:
        return remark(f"Not measured against its base yet: `prorl eval {folder.name}` does it.", "soft")
    base, trained = max(pairs, key=lambda pair: pair[0].samples)
    html = ""
    for part, title in TITLES:
        moves = paired(*([one for one in study.problems if one.part == part] for study in (base, trained)))
        if moves:
            html += _part(moves, title, trained, min(base.samples, trained.samples))
    return html


def _pair(paths: Sequence[Path]) -> tuple[Study, Study] | None:
    """The base and the last checkpoint that a study asked."""
    checkpoints = [path for path in paths if step_of(path) is not None]
    if not checkpoints or paths[0].stem != BASE:
        return None
    return read_study(paths[0], columns=SLIM), read_study(checkpoints[-1], columns=SLIM)


def _part(moves: Sequence[Move], title: str, trained: Study, samples: int) -> str:
    rows = compare(moves, [1, samples] if samples > 1 else [1])
    who = trained.model if trained.step is None else f"the policy of step {trained.step}"
    told = "; ".join(_told(rows[-1], at) for at in range(len(rows[-1].differences)))
    text = paragraph(f"Of {len(moves)} {title} {who} passes {told}.", problems_moved(moves, samples))
    header = (
        "domain",
        *(name for k in rows[-1].base.ks for name in (f"base pass@{k}", "trained", "gain [95 %]")),
    )
    return text + fold(f"By domain: {title}", table(header, map(_row, rows)))


def _told(row: Comparison, at: int) -> str:
    """One k in words, with what is to be thought of it."""
    found = row.differences[at]
    tries = "at the first try" if found.k == 1 else f"within {found.k} tries"
    doubt = "" if found.up or found.down else ", which may be chance"
    return (
        f"{percent(row.trained.rates[at])} {tries} and its base {percent(row.base.rates[at])}: {points(found.gain)} "
        f"points, 95 % interval {points(found.low)} to {points(found.high)}{doubt}"
    )


def _row(row: Comparison) -> list[str]:
    columns = zip(row.base.rates, row.trained.rates, row.differences, strict=True)
    return [
        row.label,
        *(
            cell
            for base, trained, found in columns
            for cell in (percent(base), percent(trained), _gain(found))
        ),
    ]


def _gain(found: Difference) -> str:
    return f"{points(found.gain)} [{points(found.low)}, {points(found.high)}]"
