"""The benchmarks run from end to end at a tiny size, and count what they say they count."""

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from prorl.envs.extract import respond
from prorl.envs.registry import make_task
from prorl.run.history import read_history
from support.fake_backend import FakeRenderer

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


def test_creativity_finds_what_was_copied_and_nothing_else(benchmark, capsys):
    benchmark("creativity").main(["--megabytes", "0.1", "--texts", "8"])
    printed = capsys.readouterr().out
    assert "| mean index of copied texts | 0.000 |" in printed
    assert "| mean index of new texts | 8.000 |" in printed
    assert "| texts | 8, together 2,400 words |" in printed


def gpu_record(folder: Path, parts: str) -> dict[str, Any]:
    """Written by a process of its own, because it forks, which a process with busy threads must not."""
    out = folder / "gpu.json"
    asked = ["--shape", "tiny", "--device", "cpu", "--parts", parts, "--out", out]
    command = [sys.executable, BENCHMARKS / "gpu.py", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


@pytest.mark.slow
def test_what_a_gpu_is_asked_runs_on_a_cpu(tmp_path):
    record = gpu_record(tmp_path, "machine,correctness,sharded,learn,engine_safe,decode")
    assert record["versions"]["torch"] == torch.__version__
    assert "--parts machine,correctness,sharded" in record["command"]
    parts = {name: outcome["results"] for name, outcome in record["parts"].items()}
    assert all(value > 0 for value in parts["machine"].values())
    assert all(parts["correctness"]["gates"].values())
    assert parts["sharded"]["gates"] == dict.fromkeys(parts["sharded"]["gates"], True)
    assert set(parts["engine_safe"]) & {"skipped", "rows"}
    gaps = parts["correctness"]["log-prob gap to the plain forward, nats"]
    assert 0 < gaps["decoder float32"]["max"] < gaps["decoder bfloat16"]["max"] < 0.1
    assert [(row["dtype"], row["rows"]) for row in parts["decode"]["rows"]] == [
        ("float32", 8),
        ("float32", 16),
        ("bfloat16", 8),
        ("bfloat16", 16),
    ]
    plain, fused = parts["learn"]["rows"][:5], parts["learn"]["rows"][5:]
    assert [row["packed tokens"] for row in plain] == [64, 128, 128, 128, 64]
    assert plain[-1]["compile"]
    assert [row["fused_head"] for row in fused] == [True] * hasattr(F, "linear_cross_entropy")
    assert all(row["tokens/s"] > 0 for part in ("decode", "learn") for row in parts[part]["rows"])


@pytest.mark.cluster
@pytest.mark.filterwarnings("default")
def test_what_a_gpu_is_asked_of_vllm_and_ray_runs_on_a_cpu(tmp_path):
    pytest.importorskip("vllm")
    pytest.importorskip("ray")
    parts = gpu_record(tmp_path, "engine_safe,ray")["parts"]
    engine, ray = (parts[name]["results"] for name in ("engine_safe", "ray"))
    assert all(factor >= 1 for factor in engine["mean exp |log w| by position"].values())
    assert [row["way"] for row in ray["host"]["rows"]] == ["host"] * 3
    assert all(engine["gates"].values())
    assert all(ray["gates"].values())


def fails(load, device):
    raise RuntimeError("out of memory")


def test_a_gate_that_is_missed_is_said_and_ends_with_a_failure(benchmark, monkeypatch, tmp_path, capsys):
    gpu = benchmark("gpu")
    monkeypatch.setitem(gpu.PARTS, "decode", lambda load, device: {"gates": {"same text": False}})
    assert gpu.main(["--parts", "decode", "--device", "cpu", "--out", str(tmp_path / "gpu.json")]) == 1
    assert "MISSED: same text" in capsys.readouterr().out


def test_a_part_that_fails_hangs_or_dies_costs_only_itself(benchmark, monkeypatch, tmp_path):
    gpu = benchmark("gpu")
    for part in ("decode", "nano"):
        monkeypatch.setitem(gpu.PARTS, part, fails)
    out = tmp_path / "gpu.json"
    assert gpu.main(["--parts", "decode,nano", "--device", "cpu", "--out", str(out)]) == 1
    parts = json.loads(out.read_text())["parts"]
    assert [outcome["error"] for outcome in parts.values()] == ["RuntimeError: out of memory"] * 2
    monkeypatch.setitem(gpu.PARTS, "decode", lambda load, device: time.sleep(60))
    assert gpu.measured("decode", "tiny", "cpu", deadline=0.2)["error"] == "not done after 0 s"
    monkeypatch.setitem(gpu.PARTS, "decode", lambda load, device: os._exit(9))
    assert gpu.measured("decode", "tiny", "cpu", deadline=120)["error"] == "the process ended with status 9"
    monkeypatch.setitem(
        gpu.PARTS, "decode", lambda load, device: gpu.gpu_load.say({"rows": 8}) or time.sleep(60)
    )
    assert gpu.measured("decode", "tiny", "cpu", deadline=1.0)["rows so far"] == [{"rows": 8}]
    monkeypatch.setitem(gpu.PARTS, "learn", lambda load, device: {})
    assert gpu.main(["--parts", "learn", "--device", "cpu", "--out", str(out)]) == 0
    assert list(json.loads(out.read_text())["parts"]) == ["decode", "nano", "learn"]


def test_the_operations_of_a_model_are_counted(benchmark):
    config = SimpleNamespace(hidden_size=8, num_attention_heads=2, num_hidden_layers=3)
    counter = benchmark("bound").Counter(config, inner=100, head=10)
    counter.add("generate", prompt=4, responses=[1, 3])
    # 4 + 0 + 2 tokens are read, 4 predicted; 8 pairs in the prompt, 2 × (4 + 1.5) behind it, each 4 × 3 layers × 8
    assert counter.done["generate"] == 2 * 100 * 6 + 2 * 10 * 4 + 96 * (8 + 11)
    counter.add("learn", prompt=4, responses=[1, 3], passes=3)
    assert counter.done["learn"] == 3 * counter.done["generate"]
    assert counter.done["total"] == 4 * counter.done["generate"]


@pytest.mark.slow
def test_the_bound_is_measured_beside_the_steps(benchmark, recipe, tmp_path):
    """Run as a script, whose own functions workers cannot import."""
    out = tmp_path / "bound.json"
    few = ["--workers", "2", "--steps", "1", "--rounds", "1", "--recipe", recipe, "--json", out]
    command = [sys.executable, BENCHMARKS / "bound.py", *few, "dynamic_sampling.min_spread=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "whole step, 2 cores" in done.stdout, done.stderr
    for turns in json.loads(out.read_text())["turns"].values():
        assert all(0 < part["bound"] < part["seconds"] for part in turns[0].values())


def test_refilling_is_calculated_from_the_steps_of_a_recipe(benchmark, recipe, tmp_path):
    out = tmp_path / "refill.json"
    few = ["--steps", "1", "--recipe", recipe, "--json", str(out), "dynamic_sampling.min_spread=0"]
    benchmark("refill").main(few)
    seconds = dict(json.loads(out.read_text())["rows"])
    assert 0 < seconds["as it is, were both parts equal"] <= seconds["as it is"]


def test_one_pass_for_policy_and_reference_computes_what_two_do(benchmark, capsys):
    benchmark("one_pass").main(["--rounds", "1"])  # it compares the numbers of both ways
    assert "512 tokens" in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(torch.nn.functional, "linear_cross_entropy"), reason="torch before 2.13")
def test_the_fused_head_of_torch_computes_what_ours_does(benchmark, capsys):
    small = ["--tokens", "40", "--width", "16", "--vocab", "300", "--elements", "3000", "--rounds", "1"]
    benchmark("fused_head").main(small)  # it compares the numbers of both
    assert "torch's / ours" in capsys.readouterr().out


def test_a_refilling_worker_ends_when_its_responses_do(benchmark):
    costs = benchmark("refill").Costs(token=np.array([1.0, 0, 0]), start=np.zeros(2))
    assert costs.of_wave([[3, 5]]) == 5
    assert costs.of_refilling([[3, 3], [5, 5]], 2, share=1.0, below=0.5) == 5
    assert costs.of_refilling([[2, 2], [2, 2], [4, 4]], 1, share=0.34, below=0.5) == 8


def test_a_laptop_makes_whole_steps(benchmark, capsys):
    benchmark("laptop").main(
        ["--layers", "1", "--width", "16", "--limit", "3", "--prompt", "4", "--steps", "1", "--threads", "1"]
    )
    assert "| float32 |" in capsys.readouterr().out


@pytest.mark.slow
def test_a_nano_run_is_part_of_it(tmp_path):
    results = gpu_record(tmp_path, "nano")["parts"]["nano"]["results"]
    assert (results["steps"], results["updates"]) == (3, 3)


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
    right = [renderer.encode(respond("", problem.solution.answer)) for problem in problems]
    wrong = renderer.encode(respond("", "no idea"))
    rewards = benchmark("step").Rewards(problems, renderer, min_spread=0.1)
    draws = [0, 0, 1, 1, 2, 2]  # the first group is solved, the second hopeless, the third informative
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


def test_the_long_run_is_a_run_with_all_its_curves(benchmark: Load, tmp_path: Path) -> None:
    report = benchmark("report")
    report.synthesise(tmp_path / "long", steps=60, records=120)
    path = report.write_report([tmp_path / "long"])
    assert path.stat().st_size > 1_000_000
    assert {"validation", "entropy", "kl", "seconds"} <= {
        figure.key for part in report.sections([read_history(tmp_path / "long")]) for figure in part.figures
    }
    samples = (tmp_path / "long" / "samples").glob("step_*.jsonl")
    assert sum(len(file.read_text().splitlines()) for file in samples) == 120


@pytest.mark.slow
def test_the_dashboard_sends_the_steps_that_arrive(benchmark, capsys):
    benchmark("dashboard").main(["--steps", "20", "--records", "40", "--readers", "2", "--seconds", "6"])
    told = capsys.readouterr().out
    assert re.search(r"at most +\d+\.\d MB", told)
    assert int(re.search(r"(\d+) further messages", told)[1]) > 0
    assert "3 streams open" in told


def test_a_study_that_is_interrupted_ends_what_runs_and_keeps_its_cpu_time(benchmark, tmp_path):
    study = benchmark("frontier")
    spent, begun = tmp_path / "cpu_seconds", tmp_path / "begun"
    sleeps = f"import pathlib, time; sum(range(10**7)); pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    jobs = [lambda: study.python("-c", sleeps, spent=spent), begun.unlink]
    Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        study.deal(jobs, 1)
    assert float(spent.read_text()) > 0
    assert begun.exists()  # the second job was never begun
    assert not study.RUNNING


@pytest.mark.slow
def test_the_frontier_study_keeps_what_is_finished_and_does_only_the_rest(benchmark, tmp_path, capsys):
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(
        RECIPE
        + "steps: 2\nvalidation: {every: 0}\n"
        + "evaluation: {per_domain: 0, ood_per_domain: 0, per_level: 2, samples: 2}\n"
    )
    study = benchmark("frontier")
    out, runs = tmp_path / "out", tmp_path / "runs"
    common = f"--recipe {recipe} --arms whole few_rollouts --out {out} --runs {runs}".split()
    small = ["--seeds", "0", "--at-once", "1"]
    study.main([*common, *small])
    first, second = (json.loads(path.read_bytes()) for path in sorted(out.glob("tiny-*.json"), reverse=True))
    assert (first["arm"], second["arm"]) == ("whole", "few_rollouts")
    assert [len(level["base"]) for level in first["levels"]] == [2] * 6
    assert [level["base"] for level in first["levels"]] == [level["base"] for level in second["levels"]]
    assert (first["steps"], first["samples"]) == (2, 2)
    printed = capsys.readouterr().out
    assert "| whole | 1 |" in printed
    shutil.rmtree(runs)
    study.main([*common, *small])
    assert not runs.exists(), "nothing was left to do"
    study.main([*common, "--list", "--seeds", "0", "1"])
    assert (
        re.findall(r"finished|to do", capsys.readouterr().out.split("|")[-1])
        == ["finished"] * 2 + ["to do"] * 2
    )


def test_the_table_of_the_study_says_what_is_mastered_new_and_lost(benchmark):
    study = benchmark("frontier")

    def run(seed, *trained, arm="whole"):
        levels = [
            {"level": at, "base": [0, 0], "trained": list(solved), "outcomes": {"new": 1, "lost": at}}
            for at, solved in enumerate(trained)
        ]
        about = {"samples": 4, "cpu_hours": 0.5, "rollouts": 2000}
        return {"arm": arm, "seed": seed, "levels": levels} | about

    whole = [run(0, (4, 4), (0, 1)), run(1, (4, 0), (2, 2))]
    (row,) = study.table(whole)
    assert row[:5] == ["whole", "2", "0.0 ± 0.0", "1.5 ± 6.4", "1.1 ± 0.8"]
    assert row[5:7] == ["0.0 ± 0.0", "53.1 ± 39.7"]  # 9 and 8 of 16 tries
    assert row[7:] == ["2.0 ± 0.0", "1.0 ± 0.0", "4.0 ± 0.0", "4.0 ± 0.0", "2.0 ± 0.0"]
    arm = [run(seed, (0, 4), (0, 0), arm="plain") for seed in (0, 1, 2)]
    (row,) = study.against([*whole, *arm], "whole")  # of the seeds that both have
    assert row[:4] == ["plain", "2", "-0.5 ± 6.4", "-0.6 ± 0.8"]
    easy, hard = study.by_level([run(0, (4, 4), (0, 1)), run(1, (4, 0), (2, 2))])
    assert easy == ["0", "0% (0% 0%)", "0%", "75% (100% 50%)", "75%", "2", "0", "4"]
    assert hard == ["1", "0% (0% 0%)", "0%", "31% (12% 50%)", "75%", "2", "2", "4"]
