"""Events survive the journal."""

import json
from typing import get_args

import pytest

from prorl.control.events import Event, from_record, to_record
from support.events import one_of_each, stepped
from support.events import rollout_stats as some_stats


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.kind)
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


@pytest.mark.parametrize(
    ("draws", "errors", "accepted", "share"),
    [(10, 0, 4, 0.4), (10, 5, 4, 0.8), (3, 3, 0, None), (0, 0, 0, None)],
)
def test_the_informative_share_is_of_the_judged_draws(draws, errors, accepted, share):
    assert some_stats(draws=draws, errors=errors, accepted=accepted).informative_share == share
