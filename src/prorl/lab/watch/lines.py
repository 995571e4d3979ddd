"""A run as plain lines, for logs and pipes: one per step, one per event. Pure text, no terminal."""

from __future__ import annotations

from collections.abc import Mapping

from prorl.control.events import (
    Evaluated,
    Event,
    Intervened,
    Ordered,
    ReferenceReset,
    Resumed,
    StageEntered,
    Started,
    Stepped,
    Stopped,
    Warned,
)


def line(event: Event, steps: int) -> str:
    """What happened, in one line."""
    match event:
        case Started():
            held = (
                "a reference is held" if event.reference_hash else "no reference: the run pays no KL penalty"
            )
            return f"started: recipe {event.config_hash}, {held}"
        case Resumed():
            origin = f", a branch of {event.branched_from}" if event.branched_from else ""
            return f"resumed from the checkpoint of step {event.step}{origin}"
        case Stepped():
            return step_line(event, steps)
        case Evaluated():
            return (
                f"exam at step {event.step}: pass@1 {event.score:.1%} ({shares(event.domains)}), "
                f"pass@n {event.pass_at_n:.1%}, without answer {event.unanswered:.1%}, {event.seconds:.0f} s"
            )
        case ReferenceReset():
            return (
                f"reference reset at step {event.step} ({event.reason}): {event.parent} → {event.name}, "
                f"the policy of step {event.source_step}, optimizer {event.optimizer}"
            )
        case StageEntered():
            return f"stage {event.index + 1} entered at step {event.step}"
        case Intervened():
            return intervention_line(event)
        case Ordered():
            return order_line(event)
        case Stopped():
            return f"stopped after step {event.step}: {event.reason}"
        case Warned():
            return f"warning at step {event.step}: {event.text}"


def intervention_line(event: Intervened) -> str:
    """What a detector said and did in one line."""
    lowered = f"learning rate × {event.lr_scale:g} until step {event.lr_until}"
    rolled = f"rolled back from step {event.from_step} to the checkpoint of step {event.step}"
    done = {
        "warn": "warned only",
        "exam": "an exam is sat",
        "reset_reference": "the reference is reset",
        "lower_lr": lowered,
        "roll_back": rolled if event.lr_scale == 1 else f"{rolled}, {lowered}",
        "pause": "paused",
        "stop": "stopped",
    }[event.action]
    numbers = " (threshold {threshold:g}, {hits:g} of {of_last:g})" if event.numbers else ""
    told = event.reason + numbers.format(**event.numbers)
    return f"{event.detector.upper()} at step {event.from_step or event.step}: {told}; {done}"


def order_line(event: Ordered) -> str:
    """What the operator ordered in one line."""
    told = " ".join([event.order, *(f"{key}={value}" for key, value in event.settings.items())])
    if event.text:
        told += f" “{event.text}”"
    if event.refused is not None:
        return f"order refused at step {event.step}: {told}: {event.refused}"
    return f"order at step {event.step}: {told}"


def step_line(event: Stepped, steps: int) -> str:
    """One training step in one line."""
    tally, update, seconds = event.tally, event.update, event.seconds
    total = seconds["total"]
    parts = [
        f"step {event.step}/{steps}",
        f"score {number(tally.score, '.3f')}",
        f"reward {number(tally.reward, '.3f')}",
        f"entropy {number(update.entropy, '.3f')}",
        f"kl {number(update.kl, '.4f')}",
        f"grad {number(update.grad_norm, '.2f')}",
        f"length {number(tally.length, '.1f')}",
        f"informative {number(tally.informative_share, '.0%')} (easy {tally.easy}, hard {tally.hard})",
        f"{tally.sampled_tokens / total:.0f} tokens/s",
        f"{total:.2f} s (generate {seconds.get('generate', 0) / total:.0%}, "
        f"learn {seconds.get('learn', 0) / total:.0%}, rest {overhead(seconds):.1%})",
    ]
    if event.length_weight:
        parts.append(f"length penalty {event.length_weight:g}")
    if update.skipped:
        parts.append(f"{update.skipped} UPDATES NOT FINITE, SKIPPED")
    if tally.errors:
        parts.append(f"{tally.errors} groups lost to verifier errors")
    return " · ".join(parts)


def number(value: float | None, form: str) -> str:
    """A number for people; a dash where nothing was measured."""
    return "–" if value is None else format(value, form)


def overhead(seconds: Mapping[str, float]) -> float:
    """Share of a step that was neither generation nor learning."""
    total = seconds["total"]
    return 1 - (seconds.get("generate", 0.0) + seconds.get("learn", 0.0)) / total if total else 0.0


def shares(values: Mapping[str, float]) -> str:
    """`math 41% code 30% …`."""
    return " ".join(f"{name} {value:.0%}" for name, value in values.items())
