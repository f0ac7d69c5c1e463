# Two commands set the project up: `make sweep` and `make test`. `make check` is the one definition
# of green.

PYTHON ?= python3
VENV := .venv
# Another interpreter may stand in for the virtual environment: make test-gpu PY=python3
PY ?= $(VENV)/bin/python
# Not quiet: it may download gigabytes, and shows how far it is.
PIP_INSTALL := $(VENV)/bin/python -m pip install --disable-pip-version-check
KERNELS := --editable ./kernels
# Sizes on Linux x86-64, with torch of constraints.txt.
DOWNLOADS := downloads about 0.5 GB with a CPU build of torch, 2.8 GB with that of PyPI
SOURCES := bt_bench kernels tests studies docs/site

# In a folder that a gate passes over, or no two trees of this project would be equal.
STATE := $(VENV)/share/bt-bench
ANY_TRITON := $(STATE)/constraints-any-triton.txt

ifeq ($(PY),$(VENV)/bin/python)
RUN_READY := $(STATE)/ready-run
DEV_READY := $(STATE)/ready-dev
BROWSER_READY := $(STATE)/ready-browser
SITE_READY := $(STATE)/ready-site
endif

# Without a GPU kernels are interpreted; tests that need a GPU are skipped with a reason. What tests
# inherit from this shell is settled in tests/support/environment.py.
TEST := $(PY) -m pytest
# A process per core; more than a few would wait for the longest tests. One: make test WORKERS=0
WORKERS ?= logical
# Tests on a GPU wait for each other's launches, and for host code far more. Those that time it would
# be refused beside others.
GPU_WORKERS ?= 12
PARALLEL := -n $(WORKERS) --maxprocesses 4 --dist worksteal

STATIC := $(PY) -m bt_bench gate --config studies/static.yaml --static

.PHONY: help sweep test test-slow test-gpu check release-check readme readme-check screens format format-check lint types contracts \
	gate-static census sanitize test-browser has-chromium site clean

help:
	@echo "make sweep      set up, run configs/quick.yaml, print the comparison"
	@echo "make test       set up, run all tests that need no GPU"
	@echo "make check      format, lint, types, import contracts, tests, static gate"
	@echo "make release-check  the same, and that the figures of docs/ are of the code as it is"
	@echo "make readme     write the figures of docs/ from the result folders that they are of"
	@echo "make screens    draw the screens in docs/pictures anew"
	@echo "make gate-static  compare what the kernels compile to with reports/static/census.json"
	@echo "make census     write that file anew, for a change that is meant"
	@echo "make test-gpu   tests on a CUDA device (PY=python3 for an interpreter of your own)"
	@echo "make sanitize   compute-sanitizer over the kernels, on a CUDA device"
	@echo "make test-slow  tests that take minutes"
	@echo "make test-browser  open pages of results in Chromium (Debian's package chromium)"
	@echo "make site       build docs/ into a site, build/site; any warning fails"
	@echo "make format     rewrite the sources in the project's format"

sweep: $(RUN_READY)
	$(PY) -m bt_bench sweep configs/quick.yaml

test: $(DEV_READY)
	$(TEST) $(PARALLEL) -m "not gpu and not slow and not browser"

test-slow: $(DEV_READY)
	$(TEST) $(PARALLEL) -m "slow and not gpu and not browser"

test-gpu: $(DEV_READY)
	alone=0; others=0; export BT_BENCH_TEST_GPU=1; \
	$(PY) -m pytest -m "gpu and alone" || alone=$$?; \
	$(PY) -m pytest -m "gpu and not alone" -n $(GPU_WORKERS) --dist worksteal || others=$$?; \
	exit $$((alone ? alone : others))

# Chromium is looked for before anything is installed.
test-browser: has-chromium $(BROWSER_READY)
	$(TEST) $(PARALLEL) -m browser tests/browser

has-chromium:
	@$(PYTHON) tests/support/browser.py

# All anew, or the warnings of pages that have not changed would be passed over.
site: $(SITE_READY)
	rm -rf build/site
	$(PY) -m sphinx --quiet --fresh-env --nitpicky --fail-on-warning --keep-going \
		-b html -c docs/site -d build/site-state . build/site
	@echo "The site is build/site/index.html"

# What takes seconds comes first. Types and the static gate take one core for up to a minute: they
# go beside the tests, or other cores would wait for them.
check:
	@$(MAKE) -j2 --output-sync=target format-check lint contracts readme-check
	@$(MAKE) -j3 types gate-static test

release-check: check
	$(PY) studies/readme.py --fresh

readme: $(DEV_READY)
	$(PY) studies/readme.py

readme-check: $(DEV_READY)
	$(PY) studies/readme.py --check

screens: $(DEV_READY)
	$(PY) studies/screens.py

format: $(DEV_READY)
	$(PY) -m ruff format $(SOURCES)
	$(PY) -m ruff check --fix $(SOURCES)

format-check: $(DEV_READY)
	$(PY) -m ruff format --check $(SOURCES)

lint: $(DEV_READY)
	$(PY) -m ruff check $(SOURCES)

types: $(DEV_READY)
	$(PY) -m mypy
	$(PY) -m mypy --explicit-package-bases $(wildcard examples/suites/*/*.py)

contracts: $(DEV_READY)
	$(PY) -c "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"
	$(PY) -c "from importlinter.cli import lint_imports_command as c; c(['--no-cache', '--config', 'contracts-with-types.toml'])"

# What fails is printed, and all verdicts with it; a pass is one line.
gate-static: $(DEV_READY)
	@verdicts=$$($(STATIC) --against reports/static/census.json) \
		&& echo "static gate: no launch, register, spill or compiled variant more" \
		|| { code=$$?; printf '%s\n' "$$verdicts"; exit $$code; }

census: $(DEV_READY)
	$(STATIC) --save reports/static/census.json

sanitize: $(DEV_READY)
	$(PY) studies/sanitize.py --out reports/sanitize

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and \
	'bt-bench needs Python 3.11 or later, this is ' + sys.version.split()[0] + \
	'; pass another with: make sweep PYTHON=python3.12')"
	$(PYTHON) -m venv $(VENV)

# Only the census of binaries needs one Triton, and torch of PyPI asks for another one.
$(ANY_TRITON): constraints.txt | $(VENV)/bin/python
	@mkdir -p $(STATE)
	@sed '/^triton/d' $< > $@

$(STATE)/ready-run: pyproject.toml kernels/pyproject.toml $(ANY_TRITON) | $(VENV)/bin/python
	@echo "Installing into $(VENV): $(DOWNLOADS) …"
	$(PIP_INSTALL) --constraint $(ANY_TRITON) $(KERNELS) --editable '.[run]'
	@touch $@

$(STATE)/ready-dev: pyproject.toml kernels/pyproject.toml constraints.txt $(ANY_TRITON) | $(VENV)/bin/python
	@echo "Installing into $(VENV) what tests and linters need, too: $(DOWNLOADS) …"
	$(PIP_INSTALL) --constraint constraints.txt $(KERNELS) --editable '.[dev]' || { \
	echo "Trying again with any Triton; make gate-static, and so make check, needs that of constraints.txt"; \
	$(PIP_INSTALL) --constraint $(ANY_TRITON) $(KERNELS) --editable '.[dev]'; }
	@touch $@ $(STATE)/ready-run

$(STATE)/ready-browser: $(STATE)/ready-dev
	@echo "Installing into $(VENV) what tests of pages need, too: downloads about 60 MB …"
	$(PIP_INSTALL) --constraint $(ANY_TRITON) $(KERNELS) --editable '.[browser]'
	@touch $@

# Sphinx builds the site from the files alone: torch is not needed.
$(STATE)/ready-site: pyproject.toml $(ANY_TRITON) | $(VENV)/bin/python
	@echo "Installing into $(VENV) what builds the site: downloads about 40 MB …"
	$(PIP_INSTALL) --constraint $(ANY_TRITON) --editable '.[site]'
	@touch $@
