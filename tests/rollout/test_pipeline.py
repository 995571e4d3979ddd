"""Rolling out a list of problems: the result follows from the problems, not from who was fast."""

from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.seeds import derive
from prorl.rollout.pipeline import roll_out
from prorl.stopwatch import Stopwatch
from prorl.types import Sampling
from support.rollouts import problem, response, scripted_worker

SAMPLING = Sampling(temperature=1.0, top_p=1.0, limit=100)


def answer(draw: int, sample: int) -> str:
    return str((10 * draw + sample) / 100)


def rolled(worker, draws, *, samples=3, seed=7):
    problems = [(draw, problem(draw)) for draw in draws]
    return roll_out(worker, problems, samples=samples, sampling=SAMPLING, seed=seed, clock=Stopwatch())


@given(st.permutations(range(5)), st.integers(0, 1000), st.booleans())
def test_neither_the_order_of_completion_nor_late_verdicts_change_the_groups(draws, shuffle, late):
    groups = rolled(scripted_worker(answer, shuffle=shuffle, late=late), draws)
    assert [group.draw for group in groups] == list(draws)
    assert groups == rolled(scripted_worker(answer), draws)


@given(st.integers(0, 1000), st.booleans())
def test_every_response_keeps_its_own_text_and_verdict(shuffle, late):
    for group in rolled(scripted_worker(answer, shuffle=shuffle, late=late), range(4)):
        assert [rollout.completion.sample for rollout in group.rollouts] == [0, 1, 2]
        assert group.scores == tuple(float(answer(group.draw, sample)) for sample in range(3))
        assert [r.text for r in group.rollouts] == [
            response(answer(group.draw, sample)) for sample in range(3)
        ]


def test_a_problem_is_asked_alike_whoever_is_asked_with_it():
    alone, among = scripted_worker(answer), scripted_worker(answer)
    rolled(alone, [4])
    rolled(among, [2, 4, 9])
    assert alone.engine.requests == [request for request in among.engine.requests if request.draw == 4]


def test_requests_carry_what_was_asked_for():
    worker = scripted_worker(answer)
    rolled(worker, [4, 5], samples=2, seed=11)
    request = worker.engine.requests[0]
    assert (request.draw, request.samples, request.sampling) == (4, 2, SAMPLING)
    assert request.prompt == worker.renderer.encode("problem 4")
    assert [request.seed for request in worker.engine.requests] == [derive(11, 4), derive(11, 5)]


def test_nothing_is_in_flight_afterwards():
    worker = scripted_worker(answer, late=True)
    rolled(worker, range(3))
    assert worker.engine.poll() == []
    assert worker.judge.poll(wait=True) == []


def test_no_problems_make_no_groups():
    assert rolled(scripted_worker(answer), []) == []
