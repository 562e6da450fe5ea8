# Everything a newcomer needs: each target sets itself up in .venv first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# One BLAS thread per process: two OpenBLAS pools on one machine fight.
export OPENBLAS_NUM_THREADS = 1
export OMP_NUM_THREADS = 1
export MKL_NUM_THREADS = 1

QUICK := tests/kernels tests/likelihoods tests/decisions tests/mobility/clock tests/mobility/zones tests/mobility/supply \
	tests/mobility/features tests/test_imports.py tests/test_docstrings.py tests/test_metrics.py tests/test_normal.py

.PHONY: help setup demo test test-quick test-all check lint types fuzz faults bench docs figures wheel clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)-dev  ## install into .venv (uv where there is one, else venv + pip); again only when pyproject.toml changes

# $(STAMP)-all is what `unmet` needs to run, $(STAMP)-dev what its tests need as well.
$(STAMP)-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "unmet needs Python 3.11 or newer; found $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into $(VENV) …"
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python -e '.[$*]'; \
	else \
	  { test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); } && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'; \
	fi
	@touch $@

demo: $(STAMP)-all  ## a simulated city from records to a report, beside the truth
	@$(BIN)/unmet demo --out out/demo

test: setup  ## the tests without the slow ones, and the twenty slowest of them
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --durations=20

test-quick: setup  ## tests of single functions: under ninety seconds
	$(BIN)/python -m pytest -n auto --dist worksteal -q -m "not slow" $(QUICK)

test-all: setup  ## all tests
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=20 -m "not spark"
	$(BIN)/python -m pytest --durations=5 -m spark tests  # one cluster for all of them

lint: setup  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy, strict
	$(BIN)/mypy

MINUTES ?= 10

fuzz: setup  ## damaged files of every kind, for MINUTES=10: no crash, no hang, bounded memory
	$(BIN)/python tests/fuzz/fuzz.py --minutes $(MINUTES)

faults: setup  ## a run killed before and after every change that it makes to the disk: a quarter of an hour
	UNMET_FAULTS=all $(BIN)/python -m pytest -q tests/pipeline/test_killed.py

check: lint types test-all  ## lint, types and all tests

bench: setup  ## benchmarks, printed as ratios measured in one run
	@for f in benchmarks/bench_*.py benchmarks/check_*.py; do $(BIN)/python $$f || exit 1; done

docs: setup  ## the documentation site, into out/site; any warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

figures: setup  ## the figures of the documentation, drawn again
	$(BIN)/python docs/drawing/figures.py
	$(BIN)/python docs/drawing/report.py

wheel:  ## build the package, install it into an environment of its own, and run the demo from there
	$(PYTHON) .ci/try_wheel.py

clean:  ## remove what was built
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache
