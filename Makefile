# `make` lists the targets. Everything is installed into .venv (for `make demo`: .venv-demo, which is much smaller; for
# `make docs`: .venv-docs), with one exception: `make test`, run as root on a machine without chromium, installs
# Debian's package for the browser tests. `make test BROWSER=no` installs nothing.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

# The first Python that is new enough, looked up only when needed. Override with `make setup PYTHON=/path/to/python`.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c '$(NEW_ENOUGH)' 2>/dev/null && { command -v "$$p"; break; }; done)

# The versions of uv.lock as pip constraints, so that uv and pip install the same.
CONSTRAINTS := import tomllib; \
	[print(p["name"], p["version"], sep="==") for p in tomllib.load(open("uv.lock", "rb"))["package"] if "registry" in p["source"]]

# An environment made elsewhere (a copied or moved tree) points to the wrong sources: recreate it. The demo has a small
# environment of its own, unless there is a complete one.
DEMO := $(VENV)
ifneq ($(CURDIR),$(shell cat $(STAMP) 2>/dev/null))
.PHONY: $(STAMP)
DEMO := .venv-demo
ifneq ($(CURDIR),$(shell cat $(DEMO)/.ready 2>/dev/null))
.PHONY: $(DEMO)/.ready
endif
endif

.PHONY: help setup demo test plays kills kills-queue storm soak test-dependencies test-python test-sealed test-uvicorn test-webhooks check format docs screenshots bench bench-million bench-quick lock package clean

help: ## List the targets
	@echo 'Usage: make <target> [ARGS="..."]'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Create or update .venv (with uv if installed, else with venv and pip)
	@:

demo: $(DEMO)/.ready ## See Romancy at work, in a small environment of its own (ARGS=--once: run once and exit)
	@$(DEMO)/bin/romancy demo $(ARGS)

test: $(STAMP) .browser ## Run the tests (ARGS="-k name"; BROWSER=no: skip browser tests, install no chromium)
	@ROMANCY_TEST_BROWSER=$(BROWSER) $(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-n 4 --dist loadfile --no-loadscope-reorder)

test-python: ## Run the tests on another Python (VERSION=3.14)
	@scripts/test-python $(or $(VERSION),$(error VERSION is missing: make test-python VERSION=3.14)) $(ARGS)

test-dependencies: ## Run many tests with the lowest and the newest versions of all dependencies (ARGS=lowest)
	@PYTHON="$(PYTHON)" scripts/test-dependencies $(ARGS)

test-sealed: $(STAMP) ## Run the tests of the engine with every app sealed by a codec (ARGS="tests/http -k name")
	@ROMANCY_TEST_SEALED=1 $(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-n 3 tests/engine)

test-uvicorn: $(STAMP) ## Run the tests of the server with the oldest and the newest uvicorn
	@scripts/test-uvicorn $(ARGS)

test-webhooks: $(STAMP) ## Hold the signatures of webhooks against the senders' own packages
	@scripts/test-webhooks $(ARGS)

soak: $(STAMP) ## Run random programs under faults (ROMANCY_SOAK_MINUTES=10, ROMANCY_SOAK_SEED=sim-1, ARGS=sim)
	@$(BIN)/python -m tests.soak $(ARGS)

# The viewer is tested in a real browser: Debian's, installed if possible. CI must have it.
BROWSER ?= yes
FIND_BROWSER := command -v chromium || command -v chromium-browser || command -v google-chrome

.PHONY: .browser
.browser:
	@{ $(FIND_BROWSER); } >/dev/null 2>&1 && [ "$(BROWSER)" != no ] && exit 0; \
	if [ "$(BROWSER)" = no ]; then \
		[ "$$CI" != true ] || { echo 'BROWSER=no is not allowed in CI, which must run the browser tests.' >&2; exit 1; }; \
		echo 'BROWSER=no: the browser tests are skipped, and nothing is installed.'; \
		exit 0; \
	fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		echo 'No chromium: installing it on this machine, as root, with apt-get (not wanted: make test BROWSER=no) ...'; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 \
			|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1; \
	fi; \
	{ $(FIND_BROWSER); } >/dev/null 2>&1 && exit 0; \
	[ "$$CI" != true ] || { echo 'No chromium, and CI must run the browser tests (apt-get install chromium).' >&2; exit 1; }; \
	echo 'No chromium: the browser tests are skipped (apt-get install chromium).'

plays: $(STAMP) ## Play every order of statements, with a death at every point (ROMANCY_TEST_THOROUGH=1: every state)
	@$(BIN)/python -m pytest -n 3 -m play tests

kills: $(STAMP) ## Kill workers at random, check that exactly the culprits get blocked (ARGS="--kills 1000 --pills 12 --seed 7")
	@$(BIN)/python -m tests.crash.kills $(ARGS)

kills-queue: $(STAMP) ## Kill workers of 10,000 queued instances, count on a connection of its own whether limits hold
	@ROMANCY_QUEUED=10000 $(BIN)/python -m pytest -s -m play tests/crash/test_queue_kills.py -k whoever_dies $(ARGS)

storm: $(STAMP) ## Kill and pause workers of sagas and families, judge what they did (ARGS="--database sqlite --minutes 5 --seed 7")
	@$(BIN)/python -m tests.crash.family_storm $(ARGS)

check: $(STAMP) ## Check format, lint, types and layers
	@$(BIN)/ruff format --check . || { echo 'Run `make format`.' >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	@$(BIN)/lint-imports --no-logo

format: $(STAMP) ## Format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

docs: ## Build the documentation into site/, in an environment of its own (.venv-docs)
	@$(if $(PYTHON),PYTHON="$(PYTHON)") scripts/docs

screenshots: $(STAMP) .browser ## Make the pictures of the documentation, in docs/images (ARGS="demo now": only these)
	@$(BIN)/python -m scripts.pictures $(ARGS)

# Only a Python that was named, on the command line or by the environment, is measured beside .venv's.
NAMED := $(if $(filter-out undefined default file,$(origin PYTHON)),$(PYTHON))

bench: $(STAMP) ## Compare with Edda, DBOS and Restate (ARGS=--help; on another Python: PYTHON=/path/to/python3.15)
	@$(BIN)/python -m bench $(foreach python,$(NAMED),--python $(python)) $(ARGS)

bench-million: $(STAMP) ## Start, wake and prune a million workflows on SQLite and PostgreSQL (N=100000: fewer)
	@$(BIN)/python -m bench.million $(if $(N),--count $(N)) $(ARGS)

bench-quick: $(STAMP) ## Check in two minutes whether Romancy has become slower
	@$(BIN)/python -m bench.quick $(ARGS)

lock: ## Update uv.lock after changing dependencies (needs uv)
	@uv lock

package: ## Build wheel and sdist, check them, and try the wheel in an environment of its own
	@PYTHON="$(PYTHON)" scripts/package

clean: ## Remove .venv, caches and build output
	@rm -rf $(VENV) .venv-* build dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(1)/.ready, the stamp of an environment; $(2): what uv syncs, $(3): what pip installs.
define environment
$(1)/.ready: pyproject.toml $(wildcard uv.lock)
	@if [ -f $$@ ] && [ "$$$$(cat $$@)" != "$$(CURDIR)" ]; then rm -rf $(1); fi
	@rm -f $$@
	@echo 'Setting up $(1) ...'
	@if command -v uv >/dev/null 2>&1; then \
		UV_PROJECT_ENVIRONMENT=$(1) uv sync --locked $(2) --quiet $$(if $$(PYTHON),--python "$$(PYTHON)") \
			|| { echo 'uv failed (see above); trying venv and pip ...' >&2; $$(MAKE) .with-pip VENV=$(1) PACKAGES='$(3)'; }; \
	else $$(MAKE) .with-pip VENV=$(1) PACKAGES='$(3)'; fi
	@echo '$$(CURDIR)' > $$@
endef
$(eval $(call environment,$(VENV),,-e . --group dev))
$(if $(filter $(VENV),$(DEMO)),,$(eval $(call environment,$(DEMO),--no-dev,--no-compile -e .)))

.PHONY: .with-pip
.with-pip:
	@[ -n "$(PYTHON)" ] || { echo 'Romancy needs Python 3.11 or newer, and none was found on PATH.' >&2; \
		echo 'Install one (or uv, which can download it), or specify it: make setup PYTHON=/path/to/python3' >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV) \
		|| { echo 'This Python cannot create virtual environments: install its venv module (python3-venv on Debian), or uv.' >&2; exit 1; }
	@$(BIN)/python -c '$(CONSTRAINTS)' > $(VENV)/constraints.txt
	@$(if $(findstring --group,$(PACKAGES)),$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade 'pip>=25.1')
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c $(VENV)/constraints.txt $(PACKAGES)
