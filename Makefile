# Every target sets up what it needs, in this checkout and nowhere else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Not compiled: most modules of most packages are never imported, and compiling them takes longer than installing.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes

.DEFAULT_GOAL := help
.PHONY: help setup demo test check sim peers vectors real real-versions real-install image manifests upstream bench docs proto format clean swap random-cases

help: ## list the tasks
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(VENV)/.venv: 
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Dragoman needs Python 3.11 or newer; $(PYTHON) is older. Use: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) cannot make virtual environments; on Debian and Ubuntu install the package python3-venv" >&2; rm -rf $(VENV); exit 2; }
	@touch $@

$(VENV)/.run: $(VENV)/.venv requirements.txt pyproject.toml
	@echo "setting up .venv (run time) ..."
	@$(PIP) -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.txt
	@echo "setting up .venv (tests and checks) ..."
	@$(PIP) -r requirements-dev.txt
	@touch $@

setup: $(VENV)/.run ## prepare .venv with .venv/bin/dragoman

demo: $(VENV)/.run ## a guided tour on an embedded cluster; ends by itself
	@$(BIN)/dragoman demo

# Those beside real daemons of Kubernetes run one after the other: the daemons want both cores.
test: $(VENV)/.dev ## all tests
	@$(BIN)/python -m pytest -q -n 2 --ignore tests/real tests; status=$$?; $(BIN)/python -m pytest -q tests/real && exit $$status

check: $(VENV)/.dev ## formatting, lint, types, import contracts and cycles
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/check_cycles.py

sim: $(VENV)/.dev ## the whole system in virtual time, with faults by seeds
	@$(BIN)/python -m pytest -q -n 2 tests/sim

peers: $(VENV)/.dev ## build what answers as Kubernetes does, for tests and benchmarks (needs Go)
	@$(BIN)/python bench/peer.py

vectors: peers ## ask Kubernetes' own allocator and CEL about the tests' cases again, and record the answers (needs Go)
	@$(BIN)/python tools/record_vectors.py

real: $(VENV)/.dev ## build real Kubernetes into a cache folder (needs Go), then run the tests that use it
	@$(BIN)/python -m tests.real.build
	@$(BIN)/python -m pytest -q tests/real

.PHONY: mutants
mutants: $(VENV)/.dev ## put known mistakes back one at a time; the tests must find them (resumable)
	@$(BIN)/python tools/mutants.py
	@$(BIN)/python tools/mutants.py --table

.PHONY: operators
operators: $(VENV)/.dev ## build operators into the cache folder (needs Go), then run them on dragoman up
	@$(BIN)/python -m tests.real.build --only helm
	@$(BIN)/python -m tests.real.build --operators
	@$(BIN)/python -m pytest -q tests/operators tests/real/operators

real-versions: $(VENV)/.dev ## build Kubernetes 1.36, 1.35 and 1.34 too
	@$(BIN)/python -m tests.real.build --older

real-install: $(VENV)/.dev ## install, upgrade, roll back and remove the chart with helm on a real cluster (after make real)
	@DRAGOMAN_TEST_INSTALL=1 $(BIN)/python -m pytest -q tests/real/test_install.py

image: $(VENV)/.run ## build the container image, its SBOM and our wheel into dist/, without Docker
	@$(BIN)/python tools/make_image.py

manifests: $(VENV)/.run ## make deploy/*.yaml and the table of rights again (after make real)
	@$(BIN)/python tools/make_manifests.py

upstream: $(VENV)/.dev ## run Kubernetes' own DRA suite with our scheduler (after make real)
	@$(BIN)/python -m tests.real.upstream.suite

swap: $(VENV)/.dev ## run the same scenarios with each part once ours and once Kubernetes' own; writes docs/reference/swap.md
	@$(BIN)/python -m tests.real.swap --write

random-cases: peers ## ask Kubernetes' own allocator about 100,000 random cases; goes on where it ended
	@PYTHONPATH=bench $(BIN)/python -m tests.vectors.random_cases --seconds 3600

AXE := 4.14.1
AXE_SHA512 := 1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
.PHONY: axe
axe: $(VENV)/.dev ## fetch axe-core, with which the tests of the page check accessibility (needs npm)
	@mkdir -p $(VENV)/axe && npm pack --silent --pack-destination $(VENV)/axe axe-core@$(AXE) >/dev/null
	@echo "$(AXE_SHA512)  $(VENV)/axe/axe-core-$(AXE).tgz" | sha512sum --check --quiet
	@tar -xzf $(VENV)/axe/axe-core-$(AXE).tgz -C $(VENV)/axe package/axe.min.js

bench: $(VENV)/.dev ## measure decisions beside Kubernetes' own allocator; JSON lines
	@$(BIN)/python bench/allocate.py

proto: $(VENV)/.dev ## make the gRPC messages again from their .proto files
	@$(BIN)/python tools/make_proto.py

docs: $(VENV)/.run ## make docs/reference/commands.md, doctor.md, metrics.md and schemas again
	@$(BIN)/python tools/make_commands.py
	@$(BIN)/python tools/make_doctor.py
	@$(BIN)/python tools/make_metrics.py
	@$(BIN)/python tools/make_output_schemas.py

format: $(VENV)/.dev ## format and fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## remove .venv and caches
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
