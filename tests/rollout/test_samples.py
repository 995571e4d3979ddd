"""Samples for people."""

import json

from prorl.rollout.batch import SHOWN_GROUPS, SHOWN_ROLLOUTS, Harvest, sample_records
from support.events import tally
from support.rollouts import group, response


def records(consumed, accepted=()):
    harvest = Harvest(groups=tuple(accepted), consumed=tuple(consumed), cursor=99, version=0, tally=tally())
    return sample_records(7, harvest)


def test_a_record_says_what_was_asked_answered_and_judged():
    asked = group(["1", "0"], draw=5)
    first, second = records([asked], accepted=[asked])
    assert first == {
        "step": 7,
        "draw": 5,
        "task": "score",
        "domain": "math",
        "level": 1,
        "trained": True,
        "prompt": "problem 5",
        "response": response("1"),
        "score": 1.0,
        "status": "ok",
        "note": "",
        "tokens": len(response("1")) + 1,
        "finish": "stop",
    }
    assert (second["response"], second["status"]) == (response("0"), "wrong")


def test_rejected_groups_are_shown_as_such():
    easy, used = group(["1", "1"], draw=0), group(["1", "0"], draw=1)
    assert [record["trained"] for record in records([easy, used], [used])] == [False, False, True, True]


def test_a_large_step_shows_a_few_of_its_first_groups():
    shown = records([group(["1", "0", "1"], draw) for draw in range(50)])
    assert len(shown) == SHOWN_GROUPS * SHOWN_ROLLOUTS
    assert {record["draw"] for record in shown} == set(range(SHOWN_GROUPS))


def test_records_are_plain_json():
    shown = records([group(["1", "!"])])
    assert json.loads(json.dumps(shown)) == shown
