"""The model of a step: nothing is lost, more GPUs never hurt, and its limits are those of a calculation by hand."""

import importlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.sizes import QWEN_1_5B as SIZE

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def model() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module("cluster_model")


def work(model, **changes):
    return model.Work(
        **{"prompts": 64, "samples": 8, "limit": 8192, "updates": 4, "micro_batch_tokens": 16_384} | changes
    )


def engine(model, rows=4, **changes):
    costs = {"fixed": 1.0, "per_row": 0.0, "weights": 0.5, "per_token": 0.01, "prefill": 0.0, "samples": 1}
    return model.Engine(**costs | changes, rows=rows)


def decoded(model, engine, prompt, lengths, *, engines=1, shared=False):
    """When responses of these lengths end, each a group of its own."""
    groups = [[model.Job(name=name, length=length)] for name, length in enumerate(lengths)]
    ends, left = model.decode(engine, prompt, groups, engines, shared=shared)
    assert not left
    return [ends[name] for name in range(len(lengths))]


def test_one_response_takes_its_serial_time(model):
    # 10 iterations of 1.5 s, reading a cache of 5, 6, … 14 tokens
    assert decoded(model, engine(model), 5, [10]) == pytest.approx([15.0 + 0.01 * sum(range(5, 15))])


def test_equal_responses_in_full_batches_take_what_full_engines_take(model):
    full, lengths = engine(model, rows=4), [200] * 12
    jobs = [model.Job(name=name, length=length) for name, length in enumerate(lengths)]
    # the mean context of a response is met from its first token on, hence half a token less
    assert max(decoded(model, full, 0, lengths)) == pytest.approx(full.full(0, jobs), rel=0.01)


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=30), rows=st.integers(1, 8))
def test_every_response_is_decoded_to_its_length(model, lengths, rows):
    ends = decoded(model, engine(model, rows, weights=0.0, per_token=0.0), 3, lengths)
    # a clock that ticks once per iteration: response i waits for a free row and then takes its length
    free = [0] * rows
    for end, length in zip(ends, lengths, strict=True):
        first = free.index(min(free))
        free[first] += length
        assert end == free[first]


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=30), cache=st.integers(20, 90))
def test_a_full_cache_delays_responses_and_loses_none(model, lengths, cache):
    wide, narrow = (
        decoded(model, engine(model, 8, weights=0.0, per_token=0.0, cache=tokens), 3, lengths)
        for tokens in (1e9, cache)
    )
    assert max(narrow) >= max(wide)
    assert max(narrow) <= 2 * sum(lengths)


def test_engines_that_share_a_queue_are_done_sooner(model):
    lengths = [100, 10, 100, 10, 100, 10, 10, 10]
    apart, shared = (
        max(decoded(model, engine(model, rows=1), 0, lengths, engines=2, shared=one)) for one in (False, True)
    )
    assert shared < apart


def test_a_wave_decodes_all_tokens_that_were_drawn(model):
    task, assumed = work(model), model.Assumptions()
    setup = model.colocated(SIZE, task, 8, assumed)
    waves, accepted, in_hand = model.collect(np.random.default_rng(0), setup, task, assumed)
    assert len(accepted) == 64
    assert not in_hand
    assert sum(wave.tokens for wave in waves) > sum(group.lengths.sum() for group in accepted)
    assert all(wave.judged >= wave.sampled > 0 for wave in waves)


def test_partial_rollouts_lose_no_token_and_cut_the_tail(model):
    task, assumed = work(model, partial=1.0), model.Assumptions()
    setup, rng = model.colocated(SIZE, task, 8, assumed), np.random.default_rng(0)
    in_hand, sampled, learned = [], 0, 0
    for step in range(4):
        waves, accepted, in_hand = model.collect(rng, setup, task, assumed, in_hand, step=step)
        assert len(accepted) == 64
        sampled += sum(wave.tokens for wave in waves)
        learned += sum(int(group.lengths.sum()) for group in accepted)
    assert in_hand
    assert sampled > learned + sum(int(group.written.sum()) for group in in_hand)
    whole = next(model.simulate(setup, replace(task, partial=0.0), assumed, seed=0))
    cut = [*islice(model.simulate(setup, task, assumed, seed=0), 2, 5)]
    assert all(step.tail < whole.tail and step.age > 0 for step in cut)


def test_lengths_are_cut_at_the_limit_and_alike_inside_a_group(model):
    rng, assumed = np.random.default_rng(0), model.Assumptions()
    lengths = model.draw_lengths(rng, 4000, work(model), assumed)
    assert lengths.max() == 8192
    assert np.median(lengths) == pytest.approx(3000, rel=0.05)
    logs = np.log(lengths[(lengths < 8192).all(axis=1)])
    assert np.corrcoef(logs[:, 0], logs[:, 1])[0, 1] > 0.3


def test_more_gpus_never_make_a_step_longer(model):
    task, assumed = work(model), model.Assumptions()
    totals = [
        next(model.simulate(model.colocated(SIZE, task, gpus, assumed), task, assumed, seed=0)).total
        for gpus in (1, 2, 4, 8, 16)
    ]
    assert totals == sorted(totals, reverse=True)


@pytest.mark.parametrize("learners", [1, 2, 4])
def test_overlap_is_never_slower(model, learners):
    task, assumed = work(model), model.Assumptions()
    alone, overlapped = (
        next(
            model.simulate(
                model.separate(SIZE, task, 8, learners, assumed, overlap=overlap), task, assumed, seed=1
            )
        )
        for overlap in (False, True)
    )
    assert overlapped.total < alone.total
    # what is left is at least the longer of the two
    sampling = overlapped.decode + overlapped.tail + overlapped.judge
    assert overlapped.total > max(sampling, overlapped.learn)


def test_without_a_tail_only_the_rate_counts(model):
    task = work(model, prompts=512, samples=16)
    level = model.Assumptions(length_sigma=0.0, informative=1.0)
    setup = replace(model.colocated(SIZE, task, 1, level), rows=128)
    step = next(model.simulate(setup, task, level, seed=0))
    assert step.waves == 1
    assert step.tokens == 512 * 16 * 3000
    assert step.tail < 0.01 * step.decode


def test_learning_is_floating_point_operations_over_the_rate(model):
    task, assumed = work(model, updates=1), model.Assumptions(exposed=0.0)
    setup = model.colocated(SIZE, task, 1, assumed)
    lengths = np.full((64, 8), 700)
    attention = 2 * 28 * 1536 * 1000**2
    flops = 6 * 512 * (2 * 1.54e9 * 1000 + attention)
    optimizer = 28 * 1.54e9 / 3.35e12
    # chunks of 2^27 / V rows: 22 bytes for each weight of the head; 112 for each logit
    logits = 512 * 1000 * (22 * 151_936 * 1536 / (2**27 / 151_936) + 112 * 151_936) / 3.35e12
    expected = flops / (989e12 * 0.35) + logits + optimizer
    assert model.learn(lengths, setup, task, assumed) == pytest.approx(expected)


def test_a_judge_with_few_processes_is_waited_for(model):
    assert model.judged([0.0, 0.0, 5.0], [1.0, 1.0, 1.0], judges=1) == 6.0
    assert model.judged([0.0] * 4, [2.0] * 4, judges=2) == 4.0


def test_a_larger_wave_needs_no_second_one(model):
    task, assumed = work(model), model.Assumptions()
    setup = model.colocated(SIZE, task, 8, assumed)

    def waves(margin):
        larger = replace(task, margin=margin)
        return sum(len(model.collect(np.random.default_rng(s), setup, larger, assumed)[0]) for s in range(8))

    assert waves(2.0) < waves(0.0)


def test_the_script_prints_its_tables_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    simulate = importlib.import_module("simulate")
    monkeypatch.setattr(simulate, "GPUS", (1, 64))
    monkeypatch.setattr(simulate, "RANGES", {"rows": (128, 256), "switch": (1.0, 15.0)})
    recipe = tmp_path / "small.yaml"
    recipe.write_text("extends: prorl_v2\nsampling: {prompts_per_step: 32}\n")
    figure = tmp_path / "scaling.svg"
    simulate.main(["--recipe", str(recipe), "--seeds", "1", "--gpus", "64", "--figure", str(figure)])
    printed = capsys.readouterr().out
    assert printed.count("| 64 |") == 2
    assert "`sampling.partial: 1`" in printed
    assert "| `switch` | 1 … 15 |" in printed
    drawn = ElementTree.parse(figure).getroot()
    assert len(drawn.findall("{*}rect")) == 1 + 7 + 2 * 7  # background, legend, two bars


@pytest.mark.slow
def test_the_page_quotes_what_the_script_prints(monkeypatch):
    """Two of its tables; all of them take five minutes."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    simulate = importlib.import_module("simulate")
    case = simulate.make_case("prorl_v2", 12)
    page = (BENCHMARKS.parent / "docs" / "scaling.md").read_text()
    printed = simulate.by_phase(case)[0] + "\n" + simulate.by_part(case, [32, 64])
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(rows) > 10
    assert [row for row in rows if row not in page] == []
