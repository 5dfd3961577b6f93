# Two commands do everything, each from nothing: `make train` and `make test`.
# All paths are relative, so that a checkout may lie in a folder with spaces in its name.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
READY := .venv/ready

# The Flower app's environment is its own, because flwr pins older versions of packages that gpf uses.
FEDERATED := federated/.venv/bin

.PHONY: train test test-slow federated docs notebooks release zoo coverage mutants lint format setup clean
.DELETE_ON_ERROR:

train: $(READY)  ## train the default navigator; curve and trajectories go to runs/plume-N/figures
	$(BIN)/python -m gpf train

test: $(READY)  ## the test suite, in parallel
	$(BIN)/python -m pytest -n auto -m "not slow" --durations 15

test-slow: $(READY)  ## learning checks that take minutes
	$(BIN)/python -m pytest -m slow

federated: federated/.venv/ready  ## the Flower app: its tests with real processes on loopback, and a short federation
	cd federated && .venv/bin/python -m pytest tests
	rm -rf federated/runs/short
	$(FEDERATED)/python federated/loopback.py federated/runs/short --clients 3 rounds=3 rollouts=1 lanes=16

docs: $(READY)  ## the documentation site in dist/site, built strictly by two programs, and its links checked
	$(BIN)/python benchmarks/docs_site.py

notebooks: $(READY)  ## make the notebooks of examples/ from their scripts
	$(BIN)/python benchmarks/notebooks.py

release: $(READY)  ## wheel and sdist in dist/, checked, installed in a fresh environment and used there; bill of materials, licences
	$(PIP) --constraint constraints.txt --editable '.[release]'
	$(BIN)/python benchmarks/release.py $(ARGS)

zoo: $(READY)  ## train the navigators that come with gpf again, with their cards (some minutes; the same bits on the same CPU)
	$(BIN)/python benchmarks/zoo.py

coverage: $(READY)  ## line and branch coverage of the tests, by package; options: ARGS="--against FILE.json"
	$(BIN)/python benchmarks/coverage_table.py $(ARGS)

mutants: $(READY)  ## share of small changes to the sources that the tests notice; options: ARGS="--sample 50"
	$(BIN)/python benchmarks/mutants.py $(ARGS)

lint: $(READY)  ## style, format and types
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy
	$(BIN)/python benchmarks/type_completeness.py

format: $(READY)  ## put the sources into their format
	$(BIN)/python -m ruff check --fix
	$(BIN)/python -m ruff format

setup: $(READY)  ## create .venv and install everything

# torch first and by its exact version. Its default build brings gigabytes of accelerator packages; for the CPU build,
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make setup
$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv (a few minutes, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m gpf compile
	@touch $@

federated/.venv/ready: pyproject.toml federated/constraints.txt
	@echo "setting up federated/.venv (a few minutes, once)"
	@test -x $(FEDERATED)/python || $(PYTHON) -m venv federated/.venv
	$(FEDERATED)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' federated/constraints.txt)"
	$(FEDERATED)/python -m pip install --quiet --disable-pip-version-check \
		--constraint federated/constraints.txt 'flwr[simulation]' pytest --editable .
	$(FEDERATED)/python -m gpf compile
	@touch $@

clean:  ## remove what the other targets made
	rm -rf .venv runs federated/.venv federated/runs
