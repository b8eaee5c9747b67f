# Few verbs: setup, run, test, lint, format, proto, bench, simulate. Everything happens in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.setup-done

.PHONY: setup run test lint format proto bench simulate clean

setup: $(SETUP)

$(SETUP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(SETUP)

run: setup
	$(BIN)/kayos dev

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: setup
	$(BIN)/python tests/generate_proto.py

bench: setup
	$(BIN)/kayos bench produce
	$(BIN)/kayos bench consume
	$(BIN)/kayos bench latency
	$(BIN)/kayos bench dedup
	$(BIN)/kayos bench chain
	$(BIN)/kayos bench catch-up
	$(BIN)/kayos bench fan-out

# Whole clusters of the replication core, seed by seed; COUNT and SEED choose which.
COUNT ?= 20000
SEED ?= 1
simulate: setup
	$(BIN)/python -m tests.simulation --seed $(SEED) --count $(COUNT) --processes 2

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
