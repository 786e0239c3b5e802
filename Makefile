# Two commands for a fresh machine with Python >= 3.11:  make demo   and   make test
PYTHON ?= python3
VENV := .venv
# Processes for tests. More than one per core is slower, because some tests start processes and threads.
WORKERS ?= 2
BIN := $(VENV)/bin
# One stamp for each set of extras, renewed when the dependencies change.
STAMP = $(VENV)/.installed-$(1)

# The algorithms of the paper's tables; FKM takes longer.
PAPERS = --only algorithm=k-means,ewf,dwf,kfed

.DEFAULT_GOAL := help
.PHONY: help demo install test test-pythons test-lowest test-faults test-paper lint format bench study-memory study-paper docs clean

help:  ## Show the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fedkmeans needs Python 3.11 or newer; set PYTHON=..., for instance: make demo PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.$(if $(filter-out base,$*),[$*])'
	@touch $@

demo: $(VENV)/.installed-base  ## Install into .venv and compare the algorithms on the paper's synthetic data.
	$(BIN)/fedkmeans demo

install: $(VENV)/.installed-dev  ## Install everything a developer needs into .venv.

test: $(VENV)/.installed-test  ## Install what tests need and run all but the paper's long runs and most fault tests.
	$(BIN)/python -m pytest -m "not paper and (short or not faults)" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-pythons: $(VENV)/.installed-test  ## Run them with every supported Python that this machine has; FAST=--fast for a selection.
	$(BIN)/python tests/matrix.py pythons $(FAST)

test-lowest: $(VENV)/.installed-test  ## Run them with the lowest allowed versions of all dependencies; FAST=--fast for a selection.
	$(BIN)/python tests/matrix.py lowest $(FAST)

test-faults: $(VENV)/.installed-test  ## Run the fault tests of federations with real processes (20 minutes).
	$(BIN)/python -m pytest -m faults

test-paper: $(VENV)/.installed-test  ## Run the long parity runs against the paper's tables (half an hour).
	$(BIN)/python -m pytest -m paper

lint: $(VENV)/.installed-dev  ## Check style, types and import rules.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev  ## Format the code and fix what ruff can fix.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-bench  ## Compare the speed with the paper's loop, scikit-learn and faiss.
	$(BIN)/python -m benchmarks

study-memory: $(VENV)/.installed-test  ## Run or resume the study behind the defaults, and write its tables and figures (20 minutes).
	PATH="$(BIN):$$PATH" studies/memory.sh

study-paper: $(VENV)/.installed-test  ## Run or resume the paper's study, and write its tables and figures (hours).
	$(BIN)/fedkmeans study run studies/paper-synthetic.toml $(PAPERS)
	$(BIN)/fedkmeans study run studies/paper-mnist.toml $(PAPERS) --runs 20
	$(BIN)/fedkmeans study run studies/paper-mnist.toml --only algorithm=kfed --clients 100
	$(BIN)/fedkmeans study run studies/paper-femnist.toml $(PAPERS) --runs 20 --clients 100
	$(BIN)/fedkmeans study run studies/paper-femnist.toml $(PAPERS) --runs 5 --clients 5,10
	$(BIN)/fedkmeans study run studies/paper-synthetic.toml --only algorithm=fkm --runs 20 --clients 10,100
	$(BIN)/fedkmeans study run studies/paper-mnist.toml --only algorithm=fkm --runs 3 --clients 100
	$(BIN)/fedkmeans study run studies/paper-femnist.toml --only algorithm=fkm --runs 5 --clients 10
	$(BIN)/fedkmeans study run studies/ewf-stopping.toml
	$(BIN)/fedkmeans study run studies/fkm-server-init.toml
	PATH="$(BIN):$$PATH" studies/results.sh

docs: $(VENV)/.installed-dev  ## Build the documentation into site/.
	$(BIN)/mkdocs build --strict

clean:  ## Remove the environment and everything built.
	rm -rf $(VENV) .venvs site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis fedkmeans-demo
