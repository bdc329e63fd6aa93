# Two commands on a fresh machine that has Python 3.11 or later, git and make:
#   make demo   sets up and runs the main job on real photos
#   make test   sets up and passes the tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# pip would compile every file of PyTorch and Ray on one core for a minute; compiled when they are
# first imported, it is a tenth of them. Where that is switched off each process would compile anew.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE

PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --durations=25

.PHONY: demo test thorough fast lint bench clean

demo: $(VENV)/.demo
	$(BIN)/curate demo demo

test: $(VENV)/.test lint
	$(PYTEST) -m "not thorough"

# Also those that show once more, under further conditions, what others show.
thorough: $(VENV)/.test lint
	$(PYTEST)

# Without the slow ones: whole runs, kills, browsers.
fast: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Class folders of photos in $CURATE_PHOTOS, or in photos/.
bench: $(VENV)/.test
	$(BIN)/python benchmarks/filter.py
	$(BIN)/python benchmarks/filter.py --mix 0.11
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/dedup.py
	$(BIN)/python benchmarks/download.py
	$(BIN)/python benchmarks/release.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/resampling.py
	$(BIN)/python benchmarks/corruptions.py --large
	$(BIN)/python benchmarks/testbed_run.py

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed: make PYTHON=python3.12 demo"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.made
	$(INSTALL) -e '.[demo]'
	touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.made
	$(INSTALL) -e '.[test]'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
