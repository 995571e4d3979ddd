"""How often a model is right in k tries: pass@k and majority vote, every model of a study in one picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prorl.lab.evals.comparison import Difference, compare, paired
from prorl.lab.evals.statistics import Curve, by_domain, curve, grouped, majority_rates, voting
from prorl.lab.report.drawing import Drawn, Trace, curve_traces, k_axis, panels, share_axis
from prorl.lab.report.markup import paragraph
from prorl.lab.report.section import Figure, Section
from prorl.lab.report.style import label
from prorl.lab.report.words import PARTS, percent, points
from prorl.rollout.validation import Part, ProblemResult

Draw = Callable[[Sequence[ProblemResult], Sequence[int]], Curve]

HOW_TO_READ = (
    "The share of problems solved by at least one of k responses; bands are 95 % intervals over problems."
)


def pass_section(models: Sequence[Drawn], ks: Sequence[int], key: str, title: str) -> Section:
    """pass@k of all models: the mean over domains, then a panel per domain, held-out and out-of-domain apart."""
    parts = [part for part in PARTS if models[0].of(part)]
    base, trained = models[0], models[-1]
    text = "".join(paragraph(_gain(base, trained, part, ks[-1])) for part in parts if trained is not base)
    each = [
        _by_domain(models, ks, part, f"{key}-{part}")
        for part in parts
        if len(_domains(models[0].of(part))) > 1
    ]
    return Section(key=key, title=title, html=text, figures=(pass_figure(models, ks, key), *each))


def pass_figure(models: Sequence[Drawn], ks: Sequence[int], key: str) -> Figure:
    """The mean over domains, a panel per part: the one figure of a study."""
    return _by_part(
        models, ks, key, "pass@k, mean over domains", HOW_TO_READ, _pass, "pass@k", lambda some: some
    )


def majority_figure(models: Sequence[Drawn], ks: Sequence[int], key: str) -> Figure | None:
    """maj@k, mean over domains; None where no problem can be voted on."""
    everybody = [model.of(*PARTS) for model in models]

    def chosen(problems: list[ProblemResult]) -> list[ProblemResult]:
        return voting(problems, *everybody)

    if not chosen(everybody[0]):
        return None
    note = "How often the most frequent answer of k responses is right, over problems on which all can vote."
    return _by_part(models, ks, key, "maj@k, mean over domains", note, _majority, "maj@k", chosen)


def _by_part(
    models: Sequence[Drawn],
    ks: Sequence[int],
    key: str,
    title: str,
    note: str,
    draw: Draw,
    what: str,
    chosen: Callable[[list[ProblemResult]], list[ProblemResult]],
) -> Figure:
    parts = [part for part in PARTS if chosen(models[0].of(part))]
    traces: list[Trace] = []
    for panel, part in enumerate(parts):
        for model in models:
            if problems := chosen(model.of(part)):
                traces += curve_traces(model, draw(problems, ks), panel, legend=panel == 0)
    layout = panels([PARTS[part] for part in parts], k_axis(ks), share_axis(what))
    return Figure(key=key, title=title, data=tuple(traces), layout=layout, note=note)


def _by_domain(models: Sequence[Drawn], ks: Sequence[int], part: Part, key: str) -> Figure:
    domains = _domains(models[0].of(part))
    traces: list[Trace] = []
    for model in models:
        groups = grouped(model.of(part), by_domain)
        for panel, domain in enumerate(domains):
            if domain in groups:
                traces += curve_traces(model, _pass(groups[domain], ks), panel, legend=panel == 0)
    layout = panels([label(domain) for domain in domains], k_axis(ks), share_axis("pass@k"))
    return Figure(
        key=key,
        title=f"pass@k per domain, {PARTS[part]}",
        data=tuple(traces),
        layout=layout,
        note=HOW_TO_READ,
    )


def _pass(problems: Sequence[ProblemResult], ks: Sequence[int]) -> Curve:
    return curve("", problems, ks)


def _majority(problems: Sequence[ProblemResult], ks: Sequence[int]) -> Curve:
    return curve("", problems, ks, rates_PK=majority_rates(problems, ks))


def _domains(problems: Sequence[ProblemResult]) -> list[str]:
    return sorted(grouped(problems, by_domain))


def _gain(base: Drawn, trained: Drawn, part: Part, k: int) -> str:
    moves = paired(base.of(part), trained.of(part))
    if not moves:
        return ""
    mean = compare(moves, (1, k))[-1]
    (at_1, at_k), first, last = mean.differences, mean.base, mean.trained
    start = f"{PARTS[part].capitalize()}: on the first try {base.name} solved {percent(first.at(1))}"
    return (
        f"{start} and {trained.name} {percent(last.at(1))} ({_verdict(at_1)}); in any of {k} tries "
        f"{percent(first.at(k))} and {percent(last.at(k))} ({_verdict(at_k)})."
    )


def _verdict(gain: Difference) -> str:
    sure = gain.up or gain.down
    interval = f"{points(gain.gain)} points, 95 % interval {points(gain.low)} to {points(gain.high)}"
    return interval if sure else f"{interval}, which includes no change"
