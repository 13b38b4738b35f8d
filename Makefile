# `make demo` and `make test` do everything from a fresh clone, virtual environment included.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := -m pip install --quiet --disable-pip-version-check
TRAIN := $(VENV)/.train
BUILT := $(VENV)/.built
READY := $(VENV)/.dev

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all fast-tests test-native test-aarch64 test-core test-nvflare lint docs format \
  bench fuzz results audit dist wheels wasm clean
MINUTES ?= 10
WHEELS := $(foreach machine,x86_64 aarch64,$(addprefix $(machine)-,linux-gnu.2.17 linux-musl macos.11.0)) x86_64-windows-gnu
CORE_TESTS := tests/codecs tests/quantizers tests/rules tests/protocol tests/test_theory.py \
  $(addprefix src/adaquantfl/,codecs quantizers rules protocol theory.py)

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(READY)  ## a virtual environment with everything

$(TRAIN): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) -c constraints.txt -e '.[train]'
	@touch $@

$(BUILT): $(TRAIN) hatch_build.py $(wildcard core/*.[ch])
	$(BIN)/python hatch_build.py
	@touch $@

$(READY): $(BUILT)
	$(BIN)/python $(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

DEMO := $(BIN)/adaquantfl compare demo --set workers=1 --out demo --methods

demo: $(BUILT)  ## the paper's figure on bundled pictures: figures, tables and a page in demo/, in about a minute
	trap 'kill $$!' INT TERM; $(DEMO) auto,8bit --quiet > /dev/null & $(DEMO) adaquant,2bit,4bit > /dev/null; code=$$?; wait $$! && exit $$code
	@$(DEMO) auto,adaquant,2bit,4bit,8bit --quiet

test: $(READY)  ## lint, types and all but the slow tests, in about three minutes
	$(MAKE) --jobs=2 lint fast-tests

test-all: test  ## with the slow tests: packages, sanitizers, the site, a browser, Flower, long training
	$(BIN)/python -m pytest -m slow --durations=15

fast-tests: $(READY)
	$(BIN)/python -m pytest -m "not slow" --numprocesses=auto --maxprocesses=4 --dist=worksteal --durations=15

test-native:  ## the core in C, with sanitizers, by gcc and (where it is) clang
	$(PYTHON) core/native.py sanitize

test-aarch64:  ## the core in C for 64-bit ARM, in qemu
	$(PYTHON) core/native.py aarch64

# In an environment of its own, without the extras and without pins: what `pip install adaquantfl` brings.
test-core:  ## quantizers, codecs, rules, protocol and theory with NumPy alone
	$(PYTHON) -m venv .venv-core
	.venv-core/bin/python $(PIP) . pytest pytest-timeout hypothesis scipy
	.venv-core/bin/python -m pytest -m "not slow" $(CORE_TESTS)

# In an environment of its own: the project's has no NVFlare, which brings twenty packages.
test-nvflare:  ## the filters for NVFlare, in its simulator too, and the blocks of docs/nvflare.md
	$(PYTHON) -m venv .venv-nvflare
	.venv-nvflare/bin/python $(PIP) -c constraints-nvflare.txt \
	  -e '.[nvflare,train]' pytest pytest-timeout hypothesis
	.venv-nvflare/bin/python -m pytest tests/nvflare src/adaquantfl/nvflare

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  ## the documentation site, in site/: open site/index.html
	$(BIN)/python scripts/site_pages.py

format: $(READY)  ## sort imports and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## the figures of docs/performance.md, measured on this machine, into evidence/records/benchmarks
	cd benchmarks && for name in targets codec round memory load coldstart sizes real_updates scale mean_estimation few_bytes outer_step; do \
	  ../$(BIN)/python $$name.py --out ../evidence/records/benchmarks/$$name.json || exit 1; done

fuzz: $(READY)  ## the core for MINUTES minutes (needs clang), then frames and messages in Python; counts in evidence/records/fuzz
	nice -n 19 $(BIN)/python core/native.py fuzz --minutes $(MINUTES)
	nice -n 19 $(BIN)/python fuzz/mutate.py --minutes $(MINUTES)

results: $(READY)  ## the figures and tables of README, docs and examples, from the records in evidence/
	$(BIN)/python -m evidence.pages

# In an environment of its own: pip-audit is no dependency of the project, and asks a service on the network.
audit:  ## known vulnerabilities in the pinned versions, by pip-audit
	$(PYTHON) -m venv .audit
	.audit/bin/python $(PIP) pip-audit
	grep -hv '^-c' constraints.txt constraints-nvflare.txt > .audit/pins.txt
	.audit/bin/pip-audit --requirement .audit/pins.txt --no-deps --disable-pip

# In an environment of its own: neither twine nor zig is a dependency of the project.
dist:  ## the sdist and the wheel in dist/, checked by twine
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python $(PIP) build twine
	rm -rf dist
	.venv-dist/bin/python -m build
	.venv-dist/bin/twine check --strict dist/*

wheels:  ## wheels for Linux, macOS and Windows in dist/, compiled by zig
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python $(PIP) build twine hatchling ziglang
	for target in $(WHEELS); do AQ_TARGET=$$target .venv-dist/bin/python -m build --wheel --no-isolation || exit 1; done
	.venv-dist/bin/twine check --strict dist/*

wasm:  ## the core for JavaScript, examples/device/aq.wasm, compiled by zig
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python $(PIP) ziglang
	.venv-dist/bin/python -m ziglang cc -target wasm32-wasi -mexec-model=reactor -std=c11 -O2 -ffp-contract=off -s \
	  -DAQ_PORTABLE -DAQ_VECTORS=0 -Wl,--export=aq_check,--export=aq_add,--export=__heap_base,-z,stack-size=1048576 \
	  core/*.c -o examples/device/aq.wasm

clean:  ## remove the virtual environment and what the tools left
	rm -rf $(VENV) .audit .venv-nvflare .venv-core .venv-dist .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build site
