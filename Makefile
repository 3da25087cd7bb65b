# Every target bootstraps what it needs, from a fresh clone on: `make report`, `make test`.
SHELL := /bin/bash
TOOLS := .tools
VENV  := .venv
BIN   := $(VENV)/bin
# uv if there is one, else a private copy that pip puts into .tools.
UV    := $(shell command -v uv 2>/dev/null || echo $(TOOLS)/bin/uv)
# The benchmark data beside the checkout, where they exist.
export ARDVARK_DATA ?= $(wildcard ../shared/data)
# The samplers run one chain per process: threads inside a chain only get in each other's way.
export OMP_NUM_THREADS ?= 1
JOBS  ?= 2

.PHONY: help env browser report test portable check validate notebooks docs news bench clean

help:
	@echo "make report     set up, fit the breast cancer data by all methods, write report.html"
	@echo "make test       set up, run the tests"
	@echo "make portable   the delicate tests under the kernels of other processors"
	@echo "make check      ruff, mypy, import rules"
	@echo "make validate   calibration, kernels and the long suites: hours; QUICK=1: ten minutes"
	@echo "make notebooks  run every notebook and keep its pictures"
	@echo "make docs       build the site into docs/_build/html"
	@echo "make news       what the news fragments say of the next version"
	@echo "make bench      speeds, as ratios against named peers"
	@echo "make env        leave .venv ready;  make clean: remove what was made"

$(TOOLS)/bin/uv:
	python3 -m pip install --quiet --disable-pip-version-check --target $(TOOLS) uv

$(VENV)/.ready: pyproject.toml setup.py .python-version | $(if $(filter $(TOOLS)/bin/uv,$(UV)),$(TOOLS)/bin/uv)
	$(UV) venv --quiet --allow-existing $(VENV)
	$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --editable '.[dev,docs]'
	@mkdir -p build/types/ardvark  # mypy does not follow an editable install: it finds the layout by links
	@for path in ardvark/[a-z]* ardvark/__init__.py* models inference diagnostics studies; do \
	    ln -sfn "../../../$$path" build/types/ardvark/; done
	@touch $@

# Machine code is compiled here and not in the first fit of a user. numba's cache looks at one file only:
# callers elsewhere keep the old kernel inlined, and a module that has moved is sought where it was. So
# after any change all of it is compiled anew.
$(VENV)/.warm: $(VENV)/.ready $(shell grep -rl njit inference --include=*.py)
	@echo "compiling machine code, once (about a minute) ..."
	@find inference -name '*.nb[ci]' -delete
	@$(BIN)/python -m ardvark.warmup
	@touch $@

env: $(VENV)/.warm

report: env
	$(BIN)/ardvark report wdbc --out report.html

# The tests of the reports want a browser. Where there is none, and it can be had without asking, it is
# installed; else those tests are skipped and say so. NO_BROWSER=1 leaves the machine as it is.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || [ -n "$(NO_BROWSER)" ] || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing chromium ..." && \
	    { timeout 120 apt-get -qq update; DEBIAN_FRONTEND=noninteractive timeout 400 \
	      apt-get -qq -y install --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1; } || true

test: env browser
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

# PORTABLE=short for two kernels and the most delicate files.
portable: env
	JOBS=$(JOBS) $(BIN)/python tests/portable.py $(PORTABLE)

check: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/project/import_rules.py

# QUICK=1: a part of each lane, about ten CPU minutes, and no long tests.
validate: env
	$(BIN)/python -m ardvark.studies.validation --jobs $(JOBS) $(if $(QUICK),--quick)
	$(if $(QUICK),,$(BIN)/python -m pytest -m validate --timeout 3600 -n $(JOBS))

notebooks: env
	$(BIN)/python notebooks/run.py

# Offline, with warnings as errors.
$(VENV)/.docs: $(VENV)/.ready
	$(UV) pip install --quiet --python $(BIN)/python --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -b html -W --keep-going -j auto -q docs docs/_build/html
	@echo "docs/_build/html/index.html"

news: $(VENV)/.ready
	@$(BIN)/towncrier build --draft --version next

# BENCH='--task ep --json' for a part of it.
bench: env
	$(BIN)/python -m ardvark.studies.speed.bench --uv $(UV) --tools $(TOOLS) --write studies/results/bench.json $(BENCH)
	$(BIN)/python -m ardvark.studies.speed.growth --write studies/results/bench.json
	$(BIN)/python -m ardvark.studies.speed.page

clean:
	rm -rf $(VENV) $(TOOLS) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache report.html report.json report.html.fits docs/_build docs/_generated docs/api/generated
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
