# Commands for developers. `make help` lists them.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(if $(shell $(p) -c 'import sys; print(int((3, 11) <= sys.version_info[:2] <= (3, 13)))' 2>/dev/null | grep 1),$(p))))
INSTALL = $(or $(PYTHON),$(error Weft needs Python 3.11 to 3.13; choose one with PYTHON=...)) deploy/weft_deploy/local/install.py
BIN = .venv/bin
ARGS ?=
# Number of test processes. With more than one per core, tests with real processes time out.
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help up test test-fast mutants first-hour install lint format type imports check lock generate docs bench gpu clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

up: ## start engines and the gateway; options: make up ARGS="--replicas 3"
	@$(INSTALL)
	@exec $(BIN)/weft up $(ARGS)

test: ## install the tests' packages and run all tests; a part: make test ARGS="tests/unit -k lineage"
	@$(INSTALL) --with-test
ifeq ($(strip $(ARGS)),)
	@exec $(BIN)/python -m pytest tests -n $(JOBS) --durations=15
else
	@exec $(BIN)/python -m pytest $(ARGS)
endif

test-fast: ## run the quick unit tests only
	@exec $(BIN)/python -m pytest tests/unit -m "not slow" -n $(JOBS) $(ARGS)

mutants: ## show what the tests protect: branch coverage, and how many of 150 wrong changes they notice; up to 3 hours
	@$(INSTALL) --with-test
	@exec $(BIN)/python tests/mutants/run.py $(ARGS)

first-hour: ## replay README and guides with today's newest clients; a part: make first-hour ARGS="codex keys"
	@$(INSTALL) --with-test
	@exec $(BIN)/python tests/support/first_hour.py $(ARGS)

install: ## create .venv with all packages, including the tests'
	@$(INSTALL) --with-test

lint: ## check rules and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: ## format and fix with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: ## check types with mypy (strict)
	$(BIN)/mypy

imports: ## check the import contracts
	$(BIN)/lint-imports

check: lint type imports ## run all checks that need no engine

lock: ## update requirements/*.txt (needs uv)
	requirements/lock.sh

generate: ## generate docs/reference
	$(BIN)/python -m weft_deploy.reference

docs: ## build the documentation site in .weft/site; fails on warnings
	@$(INSTALL) --with-test
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: ## run a bench: make bench ARGS="overhead --session"; without ARGS: list the benches
	@$(INSTALL) --with-test
	@exec $(BIN)/weft bench $(or $(ARGS),--help)

gpu: ## measure all that needs a GPU, in 15 minutes: make gpu ARGS="--data DATA"; some parts: make gpu ARGS="fit swap"
	@exec $(BIN)/python -m weft_bench.gpu $(ARGS)

clean: ## remove the environment and all generated files
	rm -rf .venv .weft .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
