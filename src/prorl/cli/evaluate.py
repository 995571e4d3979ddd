"""`prorl eval`: a boundary study of a run's checkpoint or of any model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prorl.cli.outcome import INTERRUPTED, fail, finish
from prorl.cli.places import Address, Backend, changes_to
from prorl.envs.errors import ProrlError
from prorl.lab.evals.evaluation_store import STUDY
from prorl.run.layout import RUNS

EXAMPLES = (
    "Examples: `prorl eval nano` · `prorl eval nano@160` · `prorl eval nano --k 16 --per-domain 50` · "
    "`prorl eval path/to/model --recipe nano --against other/model` · `prorl eval big --backend local`"
)
RUNG = 20  # problems per level of a ladder
DIGITS = 9  # of a k at most; Python refuses to read a number of thousands of them


def evaluate(
    subject: Annotated[
        str, typer.Argument(metavar="RUN[@STEP]|MODEL", help="A run, its newest checkpoint; or a model.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes to the recipe, as in evaluation.temperature=0.6.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Compare with this run's checkpoint or model; default: the run's base.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Whose problems are asked; default: the run's own.")
    ] = None,
    k: Annotated[
        str, typer.Option(help="For which k: a list 1,4,16, or the largest of the powers of two.")
    ] = "256",
    samples: Annotated[
        int | None, typer.Option(min=1, help="Responses per problem; default: the largest k.")
    ] = None,
    per_domain: Annotated[
        int | None, typer.Option(min=0, help="Held-out problems per domain; default: the recipe's.")
    ] = None,
    ood: Annotated[
        int | None, typer.Option(min=0, help="Problems per domain out of it; default: the recipe's.")
    ] = None,
    ladder_per_level: Annotated[
        int, typer.Option(min=0, help="Problems per level of each difficulty ladder.")
    ] = RUNG,
    name: Annotated[str, typer.Option(help="The study; one study asks every model the same.")] = STUDY,
    out: Annotated[
        Path | None, typer.Option(help="Where to keep studies; default: evals/ of the run, or evals/MODEL.")
    ] = None,
    backend: Backend = None,
    address: Address = None,
) -> None:
    """Find out whether the boundary moved: pass@k against the base, problem by problem.

    Goes on where an earlier call was interrupted. A run may be training meanwhile.
    """

    def work() -> None:
        ks = read_ks(k)
        settings = [
            f"evaluation.samples={samples or ks[-1]}",
            f"evaluation.ladder_per_level={ladder_per_level}",
        ]
        settings += [] if per_domain is None else [f"evaluation.per_domain={per_domain}"]
        settings += [] if ood is None else [f"evaluation.ood_per_domain={ood}"]
        try:
            from prorl.lab.measurement import (
                evaluate as measure,  # seconds, in which there may be a Ctrl-C as well
            )
            from prorl.lab.watch.console import Console

            measure(
                subject,
                against=against,
                recipe=recipe,
                settings=[*settings, *changes_to(overrides, backend, address)],
                ks=ks,
                name=name,
                out=out,
                runs=RUNS,
                console=Console(),
            )
        except KeyboardInterrupt:
            fail(
                "interrupted; what was measured is kept: give the same command again to go on "
                "(with the step, RUN@STEP, if the run trains on meanwhile)",
                INTERRUPTED,
            )

    finish(work)


def read_ks(text: str) -> tuple[int, ...]:
    """`1,4,16` as it stands, or `16` as the powers of two up to it.

    Raises:
        ProrlError: not numbers from 1 up to MOST, in ascending order.
    """
    from prorl.config.fields import MOST
    from prorl.lab.evals.statistics import powers_up_to

    parts = [part.strip() for part in text.split(",")]
    ks = tuple(int(part) for part in parts if part.isdecimal() and len(part) <= DIGITS)
    if len(ks) < len(parts) or list(ks) != sorted(set(ks)) or ks[0] < 1 or ks[-1] > MOST:
        raise ProrlError(
            f"--k {text[:20]}: say one number, or several in ascending order, as in --k 1,4,16, and none above {MOST}"
        )
    return ks if len(ks) > 1 else powers_up_to(ks[0])
