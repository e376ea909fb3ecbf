# Everything is done from here; `make help` lists the targets. The only needs are Python 3.11 or newer and the
# Python package registry, and Java 17 or 21 for the Spark parts, which are skipped without it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SITE_READY := $(VENV)/.site-ready
# More processes than two cores: many tests wait more than they work. All of Spark's go to one, which keeps one session.
PARALLEL ?= -n 4 --dist loadgroup
DETERMINISTIC := not long and not peers and not faults
# Tests start hundreds of processes: each would compile all modules again without their cached bytecode.
unexport PYTHONDONTWRITEBYTECODE
FAST := tests/unit tests/contract tests/transcripts tests/tidy

.DEFAULT_GOAL := help
.PHONY: help install serve watch demo test test-fast test-faults test-long test-stalled coverage test-peers lint format bench docs docs-site stubs pins clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

$(READY): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 …"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(READY)

install: $(READY) ## install into .venv

serve: $(READY) ## run a broker on ./millpond-data
	$(BIN)/millpond serve

watch: $(READY) ## the same, started again whenever its code changes
	$(BIN)/python deploy/watch.py src $(BIN)/millpond serve

demo: $(READY) ## see the product at work, in a temporary directory
	$(BIN)/millpond demo

test: $(READY) ## run the deterministic tests; CI runs these
	$(BIN)/python -m pytest $(PARALLEL) -m "$(DETERMINISTIC)"

test-fast: $(READY) ## the inner loop: units without command line and client library, contracts in memory and on SQLite, transcripts
	$(BIN)/python -m pytest -n 4 -q -m "$(DETERMINISTIC) and not spark" -k "not postgres and not s3" --ignore=tests/unit/cli --ignore=tests/unit/client $(FAST)

test-faults: $(READY) ## processes killed, paused and cut off, full disks, measured memory; prints its figures
	$(BIN)/python -m pytest $(PARALLEL) -m "faults and not long"

test-long: $(READY) ## test and test-faults with their longer forms, and random examples of properties
	$(BIN)/python -m pytest $(PARALLEL) --hypothesis-profile=random -m "not peers"

test-stalled: $(READY) ## the tests of `make test`, on processes that stand still now and then
	$(BIN)/python -m tests.stalled $(PARALLEL) -m "$(DETERMINISTIC)"

coverage: $(READY) ## lines and branches that `make test` runs, in all processes it starts (slow)
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -q $(PARALLEL) -m "$(DETERMINISTIC)"
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered

test-peers: $(READY) ## tests with real clients and servers (Kafka, kcat, Spark …), which it installs; says what it skips
	$(BIN)/python -m pytest -m peers -rs
	$(BIN)/python -m peers table

lint: $(READY) ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## measure, side by side with a baseline in the same run (PART=engine)
	$(BIN)/python -m benchmarks $(PART)

docs: $(READY) ## renew docs/reference from the code
	$(BIN)/python docs/generate.py

$(SITE_READY): requirements-docs.txt $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	@touch $(SITE_READY)

docs-site: $(SITE_READY) ## build the documentation as a website in site/; python -m http.server -d site shows it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean --quiet

stubs: $(READY) ## renew src/millpond/stubs from proto/
	$(BIN)/python proto/generate.py

pins: ## renew requirements*.txt (needs uv)
	uv pip compile -q pyproject.toml --no-emit-index-url --no-header --no-annotate -o requirements.txt
	uv pip compile -q pyproject.toml --extra dev --no-emit-index-url --no-header --no-annotate -o requirements-dev.txt
	uv pip compile -q --group docs -c requirements-dev.txt --no-emit-index-url --no-header --no-annotate -o requirements-docs.txt

clean: ## remove .venv, caches and the website
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
