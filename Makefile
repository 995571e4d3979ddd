# Every target makes the environment it needs: a fresh machine wants Python 3.11+ and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow chaos lint bench clean

demo: .venv/base  ## build a tiny base model, train it with ProRL v2 on five domains, print base → trained
	$(BIN)/prorl train nano --run runs/demo-$$(date +%Y%m%d-%H%M%S)

# Tiny models gain nothing from more threads, which only wait for each other on a busy machine.
test test-slow chaos: export OMP_NUM_THREADS = 1
test: .venv/dev
	$(BIN)/pytest -m "not slow" --numprocesses=auto

test-slow: .venv/dev
	$(BIN)/pytest

chaos: export CHAOS_KILLS ?= 40
chaos: .venv/dev  ## kill a trainer again and again; its runs must end with the bytes of one that nobody killed
	$(BIN)/pytest tests/chaos -s

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: export GOMP_SPINCOUNT = 1000
bench: .venv/bench  ## ratios to other software and to itself; quiet machine, some ten minutes
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/operations.py --threads 1

.venv/base: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/dev: pyproject.toml .venv/base
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

.venv/bench: pyproject.toml .venv/base
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[bench]"
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
