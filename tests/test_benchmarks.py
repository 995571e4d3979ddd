"""The benchmarks run from end to end at a tiny size, and count what they say they count."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from prorl.backends.fake import FakeRenderer
from prorl.tasks.extract import respond
from prorl.tasks.registry import make_task

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RECIPE = """
model:
  warmup:
    shape: {hidden_size: 16, layers: 1, heads: 2, kv_heads: 1, intermediate_size: 16, context: 96}
    vocab_size: 300
    steps: 2
    batch_size: 4
    corpus_problems: 50
tasks: {arithmetic: {}}
sampling: {prompts_per_step: 3, samples_per_prompt: 2, response_limit: 4}
kl: {coef: 0}
reset: {every: 0}
"""

Load = Callable[[str], ModuleType]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Load]:
    """Imports a benchmark as running it as a script would; its bases are cached apart."""
    threads = torch.get_num_threads()
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield importlib.import_module
    torch.set_num_threads(threads)


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(RECIPE)
    return str(path)


def test_scaling_measures_every_size_at_exactly_the_work_it_names(benchmark, recipe, tmp_path, capsys):
    out = tmp_path / "scaling.json"
    sizes = ["--rounds", "2", "--prompts", "2", "--samples", "4", "--limit", "4", "--threads", "1"]
    benchmark("scaling").main([*sizes, "--recipe", recipe, "--json", str(out)])
    costs = json.loads(out.read_text())["costs"]
    assert {(cost["prompts"], cost["samples"], cost["limit"]) for cost in costs} == {
        (2, 4, 4),
        *((1, 4, 4), (4, 4, 4)),
        *((2, 2, 4), (2, 8, 4)),
        *((2, 4, 2), (2, 4, 8)),
    }
    assert all(len(cost["generate"]) == 2 and min(cost["learn"]) > 0 for cost in costs)
    assert capsys.readouterr().out.count("| 2 × 4 × 4 | 32 |") == 3  # the middle row of each sweep


def test_a_ratio_is_the_median_over_rounds(benchmark):
    scaling = benchmark("scaling")
    small, large = (scaling.Size(prompts=prompts, samples=2, limit=4) for prompts in (1, 2))
    seconds = {small: (1.0, 2.0, 1.0), large: (2.0, 4.0, 9.0)}  # a busy machine spoilt the last round
    costs = {
        size: [scaling.Cost(generate=total, learn=0.0, rest=0.0) for total in totals]
        for size, totals in seconds.items()
    }
    assert "2.00×" in scaling.table([small, large], costs)


def test_rollout_compares_both_engines(benchmark, capsys):
    small = ["--layers", "1", "--width", "16", "--heads", "2", "--kv-heads", "1", "--vocab", "100"]
    few = ["--prompts", "2", "--samples", "2", "--limit", "4", "--repeats", "1", "--threads", "1"]
    benchmark("rollout").main([*small, *few])
    printed = capsys.readouterr().out
    assert "limit: median of 1 pairs" in printed
    assert "eos: median of 1 pairs" in printed


@pytest.mark.slow
def test_operations_measures_checkpoints_and_a_resume(benchmark, recipe, capsys):
    few = ["--steps", "4", "--every", "2", "--threads", "1", "--recipe", str(recipe)]
    benchmark("operations").main(few)
    printed = capsys.readouterr().out
    assert "training waits for a checkpoint (median)" in printed
    assert "`prorl resume` to the end of its first step" in printed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_trls_books_count_only_groups_with_spread(benchmark):
    pytest.importorskip("trl")
    task, renderer = make_task("arithmetic"), FakeRenderer()
    problems = [task.problem(index, "train") for index in range(3)]
    right = [renderer.encode(respond("", problem.witness.answer)) for problem in problems]
    wrong = renderer.encode(respond("", "no idea"))
    rewards = benchmark("step").Rewards(problems, renderer, min_spread=0.1)
    draws = [0, 0, 1, 1, 2, 2]  # the first group is solved, the second hopeless, the third teaches
    given = rewards.score([right[0], right[0], wrong, wrong, right[2], wrong], draws)
    assert given == [1, 1, 0, 0, 1, 0]
    turn = rewards.turn(seconds=4.0)
    assert (turn.steps, turn.rollouts, turn.informative) == (1, 6, 2)
    assert turn.tokens == sum(map(len, (right[0], right[0], wrong, wrong, right[2], wrong)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_prorl_and_trl_take_turns(benchmark, recipe, tmp_path, capsys):
    pytest.importorskip("trl")
    out = tmp_path / "step.json"
    turns = ["--pairs", "2", "--burst", "2", "--threads", "1", "--recipe", recipe, "--json", str(out)]
    benchmark("step").main([*turns, "dynamic_sampling.min_spread=0"])
    pairs = json.loads(out.read_text())["pairs"]
    assert len(pairs) == 2
    for turn in (pair[side] for pair in pairs for side in ("ours", "theirs")):
        assert turn["steps"] == 2
        assert turn["informative"] == 2 * 3 * 2  # without a filter every rollout counts, on both sides
        assert 0 < turn["tokens"] <= 4 * turn["rollouts"]
    assert "informative rollouts trained on per second" in capsys.readouterr().out
