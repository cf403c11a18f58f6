# Every habit of this project is a command here. `make help` lists them.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(if $(shell $(p) -c 'import sys; print(int((3, 11) <= sys.version_info[:2] <= (3, 13)))' 2>/dev/null | grep 1),$(p))))
INSTALL = $(or $(PYTHON),$(error Weft needs Python 3.11 to 3.13; name one with PYTHON=...)) deploy/weft_deploy/local/install.py
BIN = .venv/bin
ARGS ?=
# Test processes. More than one for each core makes tests of real processes time out.
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help up test test-fast install lint format type imports check lock generate docs bench clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

up: ## start engines and the gateway; options: make up ARGS="--replicas 3"
	@$(INSTALL)
	@exec $(BIN)/weft up $(ARGS)

test: ## install what the tests need and run all of them
	@$(INSTALL) --with-test
	@exec $(BIN)/python -m pytest --durations=15 -n $(JOBS) --dist loadgroup $(ARGS)

test-fast: ## unit tests alone, without those that take seconds
	@exec $(BIN)/python -m pytest tests/unit -m "not slow" -n $(JOBS) --dist loadgroup $(ARGS)

install: ## make .venv with everything, tests included
	@$(INSTALL) --with-test

lint: ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: ## ruff: format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: ## mypy, strict
	$(BIN)/mypy

imports: ## who may import whom
	$(BIN)/lint-imports

check: lint type imports ## all checks that need no engine

lock: ## write requirements/*.txt again (needs uv)
	requirements/lock.sh

generate: ## write dashboards and docs/reference again
	$(BIN)/python -m weft_deploy.grafana.generate
	$(BIN)/python -m weft_deploy.reference

docs: ## build the documentation as a site in .weft/site; fails on warnings
	@$(INSTALL) --with-test
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: ## measure: make bench ARGS="overhead --session"; without ARGS: list the benches
	@$(INSTALL) --with-test
	@exec $(BIN)/weft bench $(or $(ARGS),--help)

clean: ## remove the environment and what commands have left
	rm -rf .venv .weft .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
