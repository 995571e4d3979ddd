"""Events survive the journal."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.config.schema import Action
from prorl.control.events import (
    CommandGiven,
    Event,
    Intervened,
    ReferenceReset,
    Resumed,
    RolloutStats,
    StageEntered,
    Started,
    Stepped,
    Stopped,
    Validated,
    Warned,
    from_record,
    to_record,
)
from prorl.types import UpdateStats
from support.events import one_of_each, stepped
from support.events import rollout_stats as some_stats

numbers = st.floats(allow_nan=False, allow_infinity=False)
shares = st.floats(0, 1)
counts = st.integers(0, 10**12)
names = st.text(max_size=8)
words = st.dictionaries(names, names, max_size=3)
tables = st.dictionaries(names, numbers, max_size=3)
rollout_stats = st.builds(
    RolloutStats,
    **dict.fromkeys(
        ("draws", "accepted", "easy", "hard", "errors", "surplus", "rollouts", "sampled_tokens"), counts
    ),
    **dict.fromkeys(("score", "reward", "length", "truncated", "unanswered"), st.none() | numbers),
    domain_scores=tables,
)
updates = st.builds(
    UpdateStats,
    **dict.fromkeys(("updates", "skipped", "skipped_last", "tokens", "action_tokens"), counts),
    **dict.fromkeys(
        ("loss", "kl", "entropy", "grad_norm", "clip_share", "mismatch", "mismatch_out_share"),
        st.none() | numbers,
    ),
)
events = st.one_of(
    st.builds(Started, config_hash=names, reference_hash=st.none() | names, environment=words),
    st.builds(Resumed, step=counts, config_hash=names, branched_from=st.none() | names, environment=words),
    st.builds(Warned, step=counts, text=names),
    st.builds(
        Stepped,
        **dict.fromkeys(("step", "cursor", "version"), counts),
        **dict.fromkeys(("learning_rate", "length_weight", "kl_coef"), numbers),
        rollout_stats=rollout_stats,
        update=updates,
        seconds=tables,
    ),
    st.builds(
        Validated,
        step=counts,
        domains=tables,
        **dict.fromkeys(("score", "pass_at_n", "unanswered", "seconds"), numbers),
        responses=counts,
    ),
    st.builds(
        ReferenceReset,
        **dict.fromkeys(("step", "source_step"), counts),
        **dict.fromkeys(("name", "parent", "hash"), names),
        reason=st.sampled_from(["kl_ceiling", "stalled_validation", "schedule", "stage"]),
        target=st.sampled_from(["current", "best"]),
        optimizer=st.sampled_from(["keep", "clear"]),
    ),
    st.builds(StageEntered, step=counts, index=counts),
    st.builds(
        Intervened,
        **dict.fromkeys(("step", "lr_until", "obeyed"), counts),
        detector=st.sampled_from(["kl_spike", "command"]),
        action=st.sampled_from(get_args(Action)),
        reason=names,
        numbers=tables,
        rearm=st.none() | numbers,
        acted=st.dictionaries(names, counts, max_size=3),
        lr_scale=shares,
        from_step=st.none() | counts,
    ),
    st.builds(
        CommandGiven,
        **dict.fromkeys(("step", "inbox"), counts),
        **dict.fromkeys(("id", "name", "text"), names),
        settings=st.dictionaries(names, names | numbers | st.none(), max_size=3),
        refused=st.none() | names,
        overrides=st.dictionaries(names, names | numbers, max_size=3),
    ),
    st.builds(Stopped, step=counts, reason=names),
)


@given(events)
def test_an_event_survives_json(event):
    assert from_record(json.loads(json.dumps(to_record(event)))) == event


def test_kinds_tell_all_events_apart():
    kinds = [event.kind for event in get_args(Event)]
    assert len(set(kinds)) == len(kinds)
    assert {event.kind for event in one_of_each()} == set(kinds)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "record",
    [
        {"kind": "vanished", "step": 3},
        {"kind": ["stopped"], "step": 3},
        {"step": 3},
        {"kind": "stopped", "step": 3},
        {"kind": "stepped", "step": 3},
        to_record(stepped()) | {"rollout_stats": {"draws": 1}},
        to_record(stepped()) | {"update": 7},
    ],
)
def test_an_event_of_unknown_kind_or_without_a_field_is_refused(record, strict):
    with pytest.raises(ValueError, match="newer prorl"):
        from_record(record, strict=strict)


@pytest.mark.parametrize("at", ["", "rollout_stats", "update"])
def test_a_field_that_is_not_known_is_refused_or_ignored(at):
    record = to_record(stepped())
    (record[at] if at else record)["novelty"] = 1
    with pytest.raises(ValueError, match="novelty"):
        from_record(record)
    assert from_record(record, strict=False) == stepped()


def test_reading_a_record_leaves_it_as_it_is():
    record = to_record(one_of_each()[0])
    before = dict(record)
    from_record(record)
    assert record == before


@pytest.mark.parametrize(
    ("draws", "errors", "accepted", "share"),
    [(10, 0, 4, 0.4), (10, 5, 4, 0.8), (3, 3, 0, None), (0, 0, 0, None)],
)
def test_the_informative_share_is_of_the_judged_draws(draws, errors, accepted, share):
    assert some_stats(draws=draws, errors=errors, accepted=accepted).informative_share == share
