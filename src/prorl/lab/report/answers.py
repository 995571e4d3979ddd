"""What became of all responses: passed, wrong, without an answer, cut off; how long they are; what a majority says.

A base that does not know the format fails for another reason than one that does not know the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from prorl.lab.evals.statistics import answered_only, by_domain, curve, grouped
from prorl.lab.report.drawing import GREY, Drawn, Trace, axis, panels
from prorl.lab.report.markup import paragraph
from prorl.lab.report.passing import majority_figure
from prorl.lab.report.section import Figure, Section
from prorl.lab.report.style import PALETTE, faded, label
from prorl.lab.report.words import PARTS, count, percent
from prorl.rollout.validation import ProblemResult, unanswered_share

OUTCOMES = (
    ("passed", PALETTE[2]),
    ("wrong answer", faded(PALETTE[1], 0.5)),
    ("no answer", faded(GREY, 0.55)),
)
FRAME_PIXELS, ROW_PIXELS = 130, 24


def answer_section(models: Sequence[Drawn], ks: Sequence[int], key: str, title: str) -> Section:
    """Format failures apart from wrong answers, majority votes and response lengths."""
    base, trained = models[0], models[-1]
    pair = [base] if base is trained else [base, trained]
    text = paragraph(" ".join((*map(_formed, pair), _format_free(base, trained))))
    figures = (_outcomes(pair, f"{key}-outcomes"), majority_figure(pair, ks, f"{key}-majority"))
    return Section(
        key=key,
        title=title,
        html=text,
        figures=(*(figure for figure in figures if figure), _lengths(models, f"{key}-length")),
    )


def _formed(model: Drawn) -> str:
    """How many responses are no answer at all."""
    problems = model.of(*PARTS)
    truncated = sum(problem.truncated for problem in problems) / sum(problem.samples for problem in problems)
    return (
        f"Of the responses of {model.name} {percent(unanswered_share(problems))} hold no answer and "
        f"{percent(truncated)} were cut off at the limit."
    )


def _format_free(base: Drawn, trained: Drawn) -> str:
    """pass@1 without the responses that hold no answer, on problems that both models answered at all.

    Of pass@k there is no such number: who answers less often has fewer of the k tries.
    """
    before, after = base.of(*PARTS), trained.of(*PARTS)
    first, last = answered_only(before, after), answered_only(after, before)
    if base is trained or not first:
        return ""
    rates = [curve("", problems, (1,)).at(1) for problems in (first, last)]
    return (
        f"Among responses that do hold one, pass@1 went from {percent(rates[0])} to {percent(rates[1])} on the "
        f"{count(len(first), 'problem')} that both answered: so much is not the format."
    )


def _outcomes(models: Sequence[Drawn], key: str) -> Figure:
    """A bar per domain and model, of all its responses."""
    parts = [part for part in PARTS if models[0].of(part)]
    traces: list[Trace] = []
    for panel, part in enumerate(parts):
        bars = [
            (domain, model.label, problems)
            for domain in sorted(grouped(models[0].of(part), by_domain))
            for model in models
            if (problems := [problem for problem in model.of(part) if problem.domain == domain])
        ]
        for place, (name, color) in enumerate(OUTCOMES):
            shares = [_shares(problems)[place] for _, _, problems in bars]
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": name,
                    "legendgroup": name,
                    "showlegend": panel == 0,
                    "y": [[label(domain) for domain, _, _ in bars], [model for _, model, _ in bars]],
                    "x": shares,
                    "hovertemplate": "%{x:.1%}",
                    "marker": {"color": color, "line": {"width": 0}},
                    "xaxis": axis("x", panel),
                    "yaxis": axis("y", panel),
                }
            )
    x = {"tickformat": ".0%", "range": [0, 1], "title": {"text": "responses"}}
    y = {"type": "multicategory", "autorange": "reversed", "showgrid": False, "showdividers": False}
    layout = panels([PARTS[part] for part in parts], x, y, columns=2)
    for panel in range(1, len(parts)):  # a part may lack a domain
        layout[f"yaxis{panel + 1}"] = y
    layout |= {
        "barmode": "stack",
        "bargap": 0.25,
        "height": FRAME_PIXELS + ROW_PIXELS * len(models) * len(grouped(models[0].of(*PARTS), by_domain)),
        "hovermode": "y unified",
    }
    layout["grid"]["xgap"] = 0.3
    note = "A response without an answer fails by its format: the verifier found nothing to judge."
    return Figure(
        key=key, title="Passed, wrong, without an answer", data=tuple(traces), layout=layout, note=note
    )


def _shares(problems: Sequence[ProblemResult]) -> tuple[float, float, float]:
    """Of all responses: passed, answered wrongly, without an answer."""
    samples = sum(problem.samples for problem in problems)
    passed = sum(problem.solved for problem in problems) / samples
    silent = unanswered_share(problems)
    return passed, max(0.0, 1 - passed - silent), silent


def _lengths(models: Sequence[Drawn], key: str) -> Figure:
    parts = [part for part in PARTS if models[0].of(part)]
    traces: list[Trace] = []
    for panel, part in enumerate(parts):
        for model in models:
            domains = sorted(grouped(model.of(part), by_domain).items())
            traces.append(
                {
                    "type": "bar",
                    "name": model.label,
                    "legendgroup": model.label,
                    "showlegend": panel == 0,
                    "x": [label(domain) for domain, _ in domains],
                    "y": [fmean(problem.length for problem in problems) for _, problems in domains],
                    "hovertemplate": "%{y:.1f}",
                    "marker": {"color": model.color, "line": {"width": 0}},
                    "xaxis": axis("x", panel),
                    "yaxis": axis("y", panel),
                }
            )
    y = {"rangemode": "tozero", "title": {"text": "tokens"}}
    layout = panels([PARTS[part] for part in parts], {"type": "category"}, y, columns=2) | {"bargap": 0.3}
    return Figure(key=key, title="Mean response length", data=tuple(traces), layout=layout)
