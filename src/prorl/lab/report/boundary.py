"""What the studies of a run say about its reasoning boundary: pictures, each with what it shows in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prorl.envs.files import StorageError
from prorl.lab.evals.comparison import paired, patterns
from prorl.lab.evals.evaluation_store import MEASUREMENT, Study, read_study, studies
from prorl.lab.evals.statistics import powers_up_to
from prorl.lab.report.answers import answer_section
from prorl.lab.report.creativity import creativity_section
from prorl.lab.report.drawing import Drawn, drawn
from prorl.lab.report.ladders import ladder_section
from prorl.lab.report.markup import bullets, paragraph, preformatted
from prorl.lab.report.moved import moved_section, pattern_section
from prorl.lab.report.passing import pass_section
from prorl.lab.report.rollouts import solvable_section
from prorl.lab.report.section import Section
from prorl.lab.report.words import PARTS

CREATIVITY = "creativity.json"  # beside the models of a study


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One study of a run as it was read: its name, its folder, and what each model made of it."""

    name: str
    folder: Path
    models: tuple[Study, ...]


def boundary_sections(folder: Path) -> list[Section]:
    """The sections of every study of a run, the one with most responses first; keys are unique within the run.

    The measurement around training is a small study, and left out once another one compares models as well. What
    cannot be read, and a run without any study, is said in a section.
    """
    stored, trouble = _read(folder)
    compared = any(len(one.models) > 1 for one in stored if one.name != MEASUREMENT)
    shown = [one for one in stored if one.name != MEASUREMENT or not compared]
    shown.sort(key=lambda one: -one.models[0].samples)
    sections = [
        section
        for one in shown
        for section in _study(one, folder, f" ({one.name})" if len(shown) > 1 else "")
    ]
    if trouble:
        text = bullets(trouble, tone="bad")
        sections.append(Section(key="boundary-unread", title="Unread studies", html=text))
    return sections or [_absent(folder)]


def _read(folder: Path) -> tuple[list[Stored], list[str]]:
    """The studies that hold problems, and what is wrong with those that cannot be read."""
    stored: list[Stored] = []
    trouble: list[str] = []
    for name, paths in studies(folder):
        try:
            models = tuple(study for study in map(read_study, paths) if study.problems)
        except StorageError as error:
            trouble.append(str(error))
            continue
        if models:
            stored.append(Stored(name=name, folder=paths[0].parent, models=models))
    return stored, trouble


def _study(stored: Stored, run: Path, suffix: str) -> list[Section]:
    key = f"boundary-{stored.name}"
    models = drawn(stored.models)
    ks = powers_up_to(min(model.study.samples for model in models))
    asked = [model for model in models if model.of(*PARTS)]
    sections: list[Section | None] = []
    if asked:
        sections.append(pass_section(asked, ks, f"{key}-pass", f"pass@k{suffix}"))
        sections += _compared(asked, ks[-1], key, suffix)
        sections.append(answer_section(asked, ks, f"{key}-answers", f"Format, votes, lengths{suffix}"))
    title = f"Difficulty ladders{suffix}"
    sections.append(ladder_section(models, run, ks[-1], f"{key}-ladders", title))
    path = stored.folder / CREATIVITY
    sections.append(creativity_section(path, models, f"{key}-creativity", f"Creativity{suffix}"))
    return [section for section in sections if section]


def _compared(models: Sequence[Drawn], k: int, key: str, suffix: str) -> list[Section]:
    """The last model against the base, problem by problem; nothing without a base or a problem that both have."""
    base, trained = models[0], models[-1]
    before, after = base.of(*PARTS), trained.of(*PARTS)
    if not base.is_base or trained is base or not paired(before, after):
        return []
    between = _between(models)
    found = patterns(before, after, between=between.of(*PARTS) if between else None, k=k)
    name = between.name if between else None
    pattern = pattern_section(found, name, k, f"{key}-patterns", f"Patterns{suffix}")
    return [
        moved_section(models, found, k, f"{key}-moved", f"New and lost problems{suffix}"),
        # A model from elsewhere is not what this training made of the base.
        *([] if trained.study.step is None else [pattern]),
        solvable_section(base.study, trained.study, f"{key}-solvable", f"Newly solvable{suffix}"),
    ]


def _between(models: Sequence[Drawn]) -> Drawn | None:
    """The checkpoint nearest to half of the training, besides the base and the last one."""
    last = models[-1].study.step or 0
    steps = {model.study.step: model for model in models[1:-1] if model.study.step is not None}
    return steps[min(steps, key=lambda step: abs(step - last / 2))] if steps else None


def _absent(folder: Path) -> Section:
    text = paragraph(
        "No study of the reasoning boundary is stored, so nothing can be said of what the model solves now that its "
        "base could not. This command makes one:"
    )
    command = preformatted(f"prorl eval {folder} --k 256")
    return Section(key="boundary", title="Reasoning boundary", html=text + command)
