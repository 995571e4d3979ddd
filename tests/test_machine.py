"""How many processes and threads a recipe gets on a machine."""

import pytest

from prorl import build, machine
from prorl.config.recipe import RecipeError
from support.recipes import recipe


@pytest.mark.parametrize(
    ("cores", "asked", "workers", "threads"),
    [
        (8, {}, 8, 1),
        (64, {}, 16, 4),
        (8, {"threads": 1}, 8, 1),
        (8, {"threads": 3}, 2, 3),
        (2, {"threads": 4}, 1, 4),
        (8, {"workers": 2}, 2, 4),
        (8, {"workers": 1}, 1, 8),
        (2, {"workers": 5}, 5, 1),
        (8, {"workers": 3, "threads": 2}, 3, 2),
    ],
)
def test_workers_and_threads_share_the_cores_unless_the_recipe_says(
    monkeypatch, cores, asked, workers, threads
):
    monkeypatch.setattr(machine, "cores", lambda: cores)
    config = build.settled(recipe(device="cpu", **asked))
    assert (machine.worker_count(config), config.threads) == (workers, threads)


@pytest.mark.parametrize(
    ("cores", "learners", "engines", "colocate", "threads"),
    [(96, 8, 8, True, 8), (32, 8, 8, True, 4), (32, 3, 5, False, 4), (4, 8, 8, True, 1)],
)
def test_processes_of_gpus_share_the_cores(monkeypatch, cores, learners, engines, colocate, threads):
    monkeypatch.setattr(machine, "cores", lambda: cores)
    monkeypatch.setattr("prorl.cluster.settings.require_packages", lambda: None)
    placed = {"learners": learners, "engines": engines, "colocate": colocate}
    assert build.settled(recipe(backend="ray", device="cuda", cluster=placed)).threads == threads


def test_a_process_that_may_use_one_core_has_one(monkeypatch):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: {0})
    assert machine.cores() == 1


def test_more_workers_than_a_machine_could_run_are_refused(monkeypatch):
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 2)
    machine.require_processors(recipe(workers=32))
    with pytest.raises(
        RecipeError, match=r"workers \(33\) is above what this machine with 2 processors can run"
    ):
        machine.require_processors(recipe(workers=33))
