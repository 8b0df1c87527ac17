# The two commands a newcomer needs: `make demo` and `make test`. `make check` is all that CI runs.

PYTHON ?= python3
STORE ?= sqlite
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

DEMO_ARGS  ?=
TEST_ARGS  ?=
BENCH_ARGS ?=
CONFIG     ?= examples/oncegate.toml

# As many test processes as tests/conftest.py thinks right for the machine; TEST_ARGS=-n0 runs in one.
IN_PARALLEL := -n auto --dist worksteal

# What is compiled is kept, whatever the environment says: each of hundreds of processes would do it again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo run test unit lint types docs docs-serve check fmt bench profile soak broken-gates incidents path spin mutate fuzz matrix pictures servers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/$(if $(filter postgres,$(STORE))$(SERVE)$(SOURCE),.installed,.core) ## run the demo (STORE=sqlite|postgres SERVE=1 SOURCE=nats|rabbitmq|sqs|redis|kafka)
	@$(if $(SOURCE),$(BIN)/python -m tests.support.storm_demo $(SOURCE),$(BIN)/oncegate demo --store $(STORE) $(if $(SERVE),--serve) $(DEMO_ARGS))

run: $(VENV)/.installed ## run the service with a sample configuration (CONFIG=...)
	@SAMPLE_SECRET=$${SAMPLE_SECRET:-sample-secret-for-this-machine} $(BIN)/oncegate serve --config $(CONFIG)

# Tests marked slow run in `make check`: each costs a quarter of a second or more, or starts a browser or a broker.
test: $(VENV)/.installed ## run the tests in six minutes; make check adds the slow ones (TEST_ARGS=...)
	@$(BIN)/python -m pytest $(IN_PARALLEL) -m "not soak and not slow" $(TEST_ARGS)

# The pure model, the gate and the embedded ledger: no server, no browser, no matrix of program versions.
UNIT := tests/model tests/gate tests/commit tests/stores/test_conformance_sqlite.py --ignore=tests/gate/test_deployments.py
unit: $(VENV)/.installed ## run the quick tests: model, gate, SQLite
	@$(BIN)/python -m pytest $(IN_PARALLEL) -m "not soak and not slow and not postgres" $(UNIT) $(TEST_ARGS)

lint: $(VENV)/.installed ## check the format, the lint rules and the import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.installed ## check the types, those of the examples too
	$(BIN)/mypy
	cd examples && ../$(BIN)/mypy --config-file mypy.ini --cache-dir ../.mypy_cache/examples .
	cd examples/django_app && ../../$(BIN)/mypy --config-file ../mypy.ini --cache-dir ../../.mypy_cache/examples shop project manage.py
	$(BIN)/python -m tests.support.role_types

# Generated pages are compared, not written: `python -m lab.site` writes them.
docs: $(VENV)/.docs ## build the documentation site into build/site; a broken link fails
	$(BIN)/python -m lab.site --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

docs-serve: $(VENV)/.docs ## show the documentation site on http://127.0.0.1:8000, and renew it with every change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

check: lint types docs ## everything CI runs: format, lint, types, layers, docs, tests, the store on a stock server
	$(BIN)/python -m pytest $(IN_PARALLEL) $(TEST_ARGS)
	$(BIN)/python -m tests.support.stock_server $(IN_PARALLEL)

fmt: $(VENV)/.installed ## format the code and apply the safe fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# The one run behind docs/benchmarks.md: QUICK=1 takes five minutes and leaves the page alone, SHORT=1 25, else
# forty. Peers are installed into build/peers, each into an environment of its own (PEERS=0 leaves them out). With
# STORE only the gate on that store is measured, with AUDIT=PATH only the audit of that tree, beside ruff and semgrep.
EXTENT = $(if $(QUICK),quick,$(if $(SHORT),short,full))
PAGE  ?= $(if $(QUICK),build/bench/benchmarks.md,docs/benchmarks.md)
ifneq ($(AUDIT),)
bench: $(VENV)/.core
	@$(BIN)/python -m lab.audit speed $(AUDIT)
else ifeq ($(origin STORE),file)
bench: $(VENV)/.installed ## measure everything beside peers and limits (QUICK=1 SHORT=1 PEERS=0 STORE=... AUDIT=PATH BENCH_ARGS=...)
	@ONCEGATE_BENCH_PEERS=$${ONCEGATE_BENCH_PEERS:-build/peers} $(BIN)/python -m lab bench all --extent $(EXTENT) --page $(PAGE) \
	  $(if $(filter 0,$(PEERS)),--no-peers,--install) $(BENCH_ARGS)
else
bench: $(VENV)/$(if $(filter postgres,$(STORE)),.installed,.core)
	@$(BIN)/python -m lab bench $(if $(filter postgres,$(STORE)),postgres --plot bench-postgres.svg,gate) $(BENCH_ARGS)
endif

profile: $(VENV)/.installed ## flame graphs of the hot path on both stores, into build/profile
	@$(PIP) install -q -c constraints.txt py-spy
	@$(BIN)/python -m lab.bench.profiling build/profile

MINUTES ?= 10
soak: $(VENV)/.installed ## run the long tests, properties with many examples, MINUTES=10 of seeded faults; adds to docs/proof-tally.json
	$(BIN)/python -m pytest -m soak $(TEST_ARGS)
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=soak $(TEST_ARGS)
	$(BIN)/python -m lab chaos run --minutes $(MINUTES) --tally docs/proof-tally.json

broken-gates: $(VENV)/.installed ## catch every deliberately broken gate (BROKEN_ARGS=NAME for one, with its schedule)
	@$(BIN)/python -m lab broken-gates $(BROKEN_ARGS)

incidents: $(VENV)/.installed ## play every recorded incident without the gate and with it (INCIDENT_ARGS=NAME or --list)
	@$(BIN)/python -m lab incidents $(INCIDENT_ARGS)

path: $(VENV)/.installed ## count the packages that one event passes through, on both stores
	@$(BIN)/python -m lab path

spin: ## check the models of gate and lanes exhaustively (needs spin and cc)
	@command -v spin >/dev/null || { echo "spin was not found: apt-get install spin" >&2; exit 1; }
	lab/models/check.sh

mutate: $(VENV)/.installed ## take protecting lines out one by one; a test must notice each (MUTATE_ARGS=...)
	@$(BIN)/python -m lab.mutation $(MUTATE_ARGS); code=$$?; $(BIN)/python -m lab.mutation.page; exit $$code

SECONDS ?= 60
fuzz: $(VENV)/.installed ## fuzz every parser for SECONDS=60 each (needs atheris; FUZZ_ARGS=canonical for one)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || \
	  { echo "atheris was not found: $(BIN)/pip install -c constraints.txt -e '.[fuzz]'" >&2; exit 1; }
	@$(BIN)/python -m lab.fuzzing --seconds $(SECONDS) $(FUZZ_ARGS)

matrix: $(VENV)/.installed ## play the whole crash matrix and write its table on docs/proof.md (MATRIX_ARGS=--resume)
	$(BIN)/python -m lab.crash_matrix $(MATRIX_ARGS)

pictures: $(VENV)/.installed ## make the pictures of the operations page anew (needs a Chromium)
	$(BIN)/python -m tests.dashboard.pictures docs/images

SERVERS ?=
servers: $(VENV)/.installed ## install test servers into build/servers (SERVERS="ministack dynamodb seaweedfs")
	@$(BIN)/python -m tests.support.server_programs $(SERVERS)

clean: ## remove the virtual environment, caches and build output
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src lab tests -type d -name __pycache__ -prune -exec rm -rf {} +

# Two steps, so that the demo does not wait for the linters: first the package, then the dev tools.
$(VENV)/.core: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || \
	  { echo "$(PYTHON) was not found: oncegate needs Python 3.11 or newer (make PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), but oncegate needs Python 3.11 or newer:" \
	         "make PYTHON=python3.12, for example" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments: on Debian and Ubuntu," \
	         "'apt-get install python3-venv' adds what is missing" >&2; exit 1; }
	@test -x $(BIN)/pip || \
	  { echo "setting up $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "installing oncegate"
	@$(PIP) install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed: $(VENV)/.core
	@echo "installing the development tools"
	@$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@echo "installing the documentation tools"
	@$(PIP) install -q -c constraints.txt -e '.[docs]'
	@touch $@
