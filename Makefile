# Every target works as the very first command on a machine that has Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup demo test test-slow lint bench docs clean
help:
	@echo "make demo       see wane at work, on embedded data"
	@echo "make test       the tests (under five minutes on two cores)"
	@echo "make test-slow  kills, browser, real data: what takes longer"
	@echo "make lint       ruff and mypy"
	@echo "make bench      what is fast, as ratios"
	@echo "make docs       build the documentation into site/"

setup: $(READY)
# Installed again only when the list of packages changed.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "wane needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $(READY)

demo: setup
	$(BIN)/wane compare example:digits_before example:digits_after --html demo/compare.html

test: setup
	$(PYTEST) -m "not slow" -n 2

test-slow: setup
	$(PYTEST) -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

docs: setup
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site demo
