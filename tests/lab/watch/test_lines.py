"""A run in plain lines."""

import pytest

from prorl.control.events import Resumed, StageEntered, Started, Stopped
from prorl.lab.watch.lines import line, overhead, shares
from support.events import blind, evaluated, intervened, one_of_each, order, reset, stepped, tally, update


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.kind)
def test_every_event_is_one_line(event):
    text = line(event, 100)
    assert text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Started(config_hash="c0ffee", reference_hash="h"), "started: recipe c0ffee, a reference is held"),
        (
            Started(config_hash="c0ffee", reference_hash=None),
            "started: recipe c0ffee, no reference: the run pays no KL penalty",
        ),
        (Resumed(step=7, config_hash="c0ffee"), "resumed from the checkpoint of step 7"),
        (
            reset(9, reason="kl_ceiling", target="best", source_step=5, optimizer="clear"),
            "reference reset at step 9 (kl_ceiling): ref_000 → ref_001, the policy of step 5, optimizer clear",
        ),
        (
            evaluated(50, 0.25, domains={"math": 0.4, "code": 0.1}),
            "exam at step 50: pass@1 25.0% (math 40% code 10%), pass@n 90.0%, without answer 5.0%, 12 s",
        ),
        (StageEntered(step=3, index=0), "stage 1 entered at step 3"),
        (Stopped(step=3, reason="done"), "stopped after step 3: done"),
        (
            intervened(step=7),
            "KL_SPIKE at step 7: the KL to the reference is 9 times what is usual (threshold 8, 2 of 3); "
            "warned only",
        ),
        (
            intervened(step=50, action="roll_back", from_step=63, lr_scale=0.5, lr_until=113),
            "KL_SPIKE at step 63: the KL to the reference is 9 times what is usual (threshold 8, 2 of 3); "
            "rolled back from step 63 to the checkpoint of step 50, learning rate × 0.5 until step 113",
        ),
        (
            intervened(
                detector="order", action="roll_back", reason="told to roll back", numbers={}, from_step=9
            ),
            "ORDER at step 9: told to roll back; rolled back from step 9 to the checkpoint of step 1",
        ),
        (
            intervened(step=7, action="exam"),
            "KL_SPIKE at step 7: the KL to the reference is 9 times what is usual (threshold 8, 2 of 3); "
            "an exam is sat",
        ),
        (order("set", settings={"kl.coef": 5e-4}), "order at step 1: set kl.coef=0.0005"),
        (order("note", text="new verifier"), "order at step 1: note “new verifier”"),
        (order("puase", refused="no order"), "order refused at step 1: puase: no order"),
    ],
)
def test_a_line_says_what_happened(event, text):
    assert line(event, 100) == text


def test_a_step_says_how_it_went_and_where_the_time_went():
    assert line(stepped(3), 100) == (
        "step 3/100 · score 0.500 · reward 0.400 · entropy 0.600 · kl 0.0200 · grad 1.50 · length 100.0 · "
        "informative 44% (easy 3, hard 2) · 480 tokens/s · 10.00 s (generate 60%, learn 30%, rest 10.0%) · "
        "1 groups lost to verifier errors"
    )


def test_what_a_step_did_not_measure_is_a_dash():
    assert line(blind(3), 100).startswith(
        "step 3/100 · score – · reward – · entropy – · kl – · grad – · length – · informative – (easy 0, hard 0)"
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"length_weight": 0.1}, "length penalty 0.1"),
        ({"update": update(skipped=2)}, "2 UPDATES NOT FINITE, SKIPPED"),
        ({"tally": tally(errors=5)}, "5 groups lost to verifier errors"),
    ],
)
def test_a_step_tells_of_what_is_not_usual_only_when_it_happens(changes, told):
    usual = {"tally": tally(errors=0)}
    assert told in line(stepped(**(usual | changes)), 100)
    assert told not in line(stepped(**usual), 100)


@pytest.mark.parametrize(
    ("seconds", "rest"),
    [
        ({"generate": 6.0, "learn": 3.0, "total": 10.0}, 0.1),
        ({"generate": 10.0, "total": 10.0}, 0.0),
        ({"total": 10.0}, 1.0),
        ({"total": 0.0}, 0.0),
    ],
)
def test_the_rest_is_neither_generation_nor_learning(seconds, rest):
    assert overhead(seconds) == pytest.approx(rest)


def test_shares_are_whole_percentages():
    assert shares({"math": 0.414, "code": 0.3}) == "math 41% code 30%"
    assert shares({}) == ""
