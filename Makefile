# Everything runs in an environment of its own, .venv, made from requirements.lock.
# Needed beforehand: Python 3.11 or later and make. Pick the interpreter with: make setup PYTHON=python3.12

PYTHON ?= python3
UV_VERSION := 0.13.9
PYTEST_ARGS ?=
BENCH_ARGS ?=
CAMPAIGN_ARGS ?=
DIST_PYTHONS ?=
LOCK_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
BENCH_VENV := .bench-venv
PEERS := $(BENCH_VENV)/.peers-complete
# Stamps lie inside the environment, so that removing it removes them too. A stamp is written last, so an
# interrupted setup leaves none and the next call starts over. The first holds the environment's path.
UV_STAMP := $(VENV)/.uv-$(UV_VERSION)
STAMP := $(VENV)/.setup-complete
UNFINISHED := $(VENV)/.setup-unfinished

# The bundled pyright is the pinned one; do not ask the network for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help setup check-python demo test test-fast test-slow pytest campaign lint bench docs dist lock clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: check-python $(STAMP) ## Make .venv with the locked packages and this library, editable.

# An interpreter named on the command line must not be ignored because .venv is there already.
check-python:
ifneq ($(origin PYTHON),file)
	@test ! -x $(BIN)/python || { \
	    wanted=$$($(PYTHON) -c 'import sys; print(sys.version.split()[0])') && \
	    present=$$($(BIN)/python -c 'import sys; print(sys.version.split()[0])') && \
	    test "$$wanted" = "$$present" || { \
	        echo "$(VENV) has Python $$present, PYTHON=$(PYTHON) is $$wanted: run 'make clean' first." >&2; exit 2; }; }
endif

$(UV_STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed, \
	$(PYTHON) is " + sys.version.split()[0] + ". Name another: make setup PYTHON=python3.12")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@rm -rf $(BENCH_VENV)
	@(cd $(VENV) && pwd -P) > $@

# Make the environment anew where an interrupted call has left a package half-written, which counts as installed to uv;
# and in a checkout that was copied or moved, whose environment has the paths of its old place.
MOVED = $(shell stamped=$$(cat $(UV_STAMP) 2>&-) && test -n "$$stamped" && \
    test "$$stamped" != "$$(cd $(VENV) && pwd -P)" && echo moved)
ifneq ($(wildcard $(UNFINISHED))$(MOVED),)
.PHONY: $(UV_STAMP)
endif

$(STAMP): $(UV_STAMP) requirements.lock pyproject.toml
	@rm -f $@
	@touch $(UNFINISHED)
	$(UV) pip sync --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock
	$(UV) pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@rm -f $(UNFINISHED)
	@touch $@

demo: $(STAMP) ## Train on scikit-learn's digits, evaluate with exact log Z, draw samples: runs/demo, under two minutes.
	@rm -rf runs/demo
	$(BIN)/dvae train digits --run-dir runs/demo
	$(BIN)/dvae evaluate runs/demo
	$(BIN)/dvae sample runs/demo --num-rows 8

# What Python compiles is kept, the rewritten tests too: compiling all of it takes each process ten seconds.
unexport PYTHONDONTWRITEBYTECODE

# A process per core, each on one thread: teams of threads that spin for the same cores take ten times as long.
# Files go out in order, so that the short ones at the end fill the processes evenly, not by their number of tests.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

test: $(STAMP) ## Run lint beside the tests and docstring examples (PYTEST_ARGS="-k name" to select).
	@$(MAKE) --no-print-directory -j2 lint pytest

pytest: $(STAMP)
	$(PYTEST) $(PYTEST_ARGS)

# The numerics of every component once: energies, log Z, smoothing, posterior, layers, likelihoods, bounds, estimators,
# chains, evaluation, the digits of some runs; a run from training to its evaluation, and the command.
FAST := tests/boltzmann tests/smoothing tests/hierarchy tests/likelihoods tests/nets tests/config \
    tests/test_numerics.py tests/test_rng.py tests/test_posterior.py tests/test_model_exact.py \
    tests/log_partition/test_estimate.py \
    tests/objectives/test_terms.py tests/objectives/test_importance.py tests/objectives/gradients \
    tests/kernels/test_gibbs_law.py tests/samplers/test_gibbs.py \
    tests/evaluation/test_diagnostics.py tests/training/test_run.py tests/training/test_schedules.py \
    tests/cli/test_options.py \
    'tests/test_golden.py::test_digits[spike-exponential]' \
    'tests/test_golden.py::test_digits[ramps, graph, categorical, parallel tempering]' \
    'tests/test_golden.py::test_digits[overlapping-exponential, gaussian, gaps]' \
    'tests/test_golden.py::test_digits[DisARM]'

test-fast: $(STAMP) ## Run the numerics of every component once, a short run and the command, without lint: a minute.
	$(PYTEST) $(FAST) $(PYTEST_ARGS)

test-slow: $(STAMP) ## Run the tests that are too long for the default run.
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

# One thread: each case is a forked process, and forks and threads do not go together.
campaign: $(STAMP) ## Run the fault campaigns at full size, up to half an hour; writes the table of docs/reliability.md.
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m tests.campaigns $(CAMPAIGN_ARGS)

lint: $(STAMP) ## Check style, format, types, prose and the order of layers; types only where a file has changed.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python docs/lint.py
	@$(MAKE) --no-print-directory $(TYPED)

# Types take most of the time of lint. Folders are among the prerequisites, as one that loses a file is newer too.
TYPED := $(VENV)/.types-checked
$(TYPED): $(STAMP) $(shell find src reproduction -name __pycache__ -prune -o \( -type d -o -name '*.py*' \) -print)
	$(BIN)/pyright --pythonpath $(BIN)/python
	@touch $@

bench: $(STAMP) ## Time samplers and training steps against plain torch and other libraries; writes benchmarks/RESULTS.md.
	@$(MAKE) --no-print-directory $(PEERS) || echo "Going on without the peers that are missing; the results name them." >&2
	$(BIN)/python benchmarks/block_gibbs.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/kernel_forms.py
	$(BIN)/python benchmarks/gpu_gibbs.py
	$(BIN)/python benchmarks/graph_gibbs.py
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/likelihood.py
	$(BIN)/python benchmarks/wide_tables.py
	$(BIN)/python benchmarks/beside_others.py

# Peers use the torch of .venv and otherwise their own environment. Each is installed alone, so that one that is not to
# be had does not stop the others; the stamp is written when all are there.
$(PEERS): $(STAMP) benchmarks/peers.txt
	@test -x $(BENCH_VENV)/bin/python || $(UV) venv --quiet --python $(BIN)/python $(BENCH_VENV)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	    > "$$($(BENCH_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
	@missing=0; for peer in $$(sed 's/#.*//' benchmarks/peers.txt); do \
	    $(UV) pip install --quiet --python $(BENCH_VENV)/bin/python --no-deps $$peer || missing=1; done; \
	    test $$missing = 0
	@touch $@

docs: $(STAMP) ## Build the documentation into docs/_build/html; warnings are errors.
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

dist: $(STAMP) ## Build wheel and sdist, and run the demo from the wheel in empty environments of the Pythons that are found.
	.ci/dist $(UV) $(DIST_PYTHONS)

lock: $(UV_STAMP) ## Resolve requirements.lock anew (LOCK_ARGS=--upgrade for the newest versions).
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --extra docs --extra tables --extra dwave --extra hub --extra tensorboard --group dev $(LOCK_ARGS) \
	    --output-file requirements.lock pyproject.toml

clean: ## Remove everything that make created, the environment included.
	rm -rf $(VENV) $(BENCH_VENV) build dist docs/_build docs/reference docs/examples .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests docs benchmarks reproduction -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
