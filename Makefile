# Everything a developer types. `make demo` and `make test` need only Python 3.11 or newer and a package registry.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install -c constraints.txt

.PHONY: help setup demo test check docs format bench bench-accuracy soak clean

help:
	@echo "make demo    train the demo with 1 worker, 2 workers and a killed one, and compare (about two minutes)"
	@echo "make test    run the tests"
	@echo "make check   format, lint, types, direction of imports"
	@echo "make docs    the documentation as a site, in site/; a warning is an error"
	@echo "make bench   the comparison with peers, at most an hour; goes on where it was interrupted; bench/RESULTS.md"
	@echo "make bench-accuracy DATA=DIR   time to accuracy on CIFAR-10, some hours; goes on likewise"
	@echo "make soak    the tests that take many minutes"
	@echo "make setup   the environment with all development tools, in $(VENV)"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt lockstep/__init__.py | $(BIN)/python
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt lockstep/__init__.py | $(BIN)/python
	$(PIP) -e '.[dev,bench]'
	@touch $@ $(VENV)/.runtime

setup: $(VENV)/.dev

demo: $(VENV)/.runtime
	$(BIN)/lockstep demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not soak" $(PYTEST_OPTIONS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -q -W --keep-going docs site
	@echo "open site/index.html"

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(PIP) -e '.[peers]'
	$(BIN)/python -m bench

bench-accuracy: $(VENV)/.dev
	$(BIN)/python -m bench --data '$(DATA)' time-to-accuracy fast-cifar10 tutorial-resnet18 hour-cifar10 resnet50-6n2

soak: $(VENV)/.dev
	$(BIN)/python -m pytest -m soak --timeout 3600 $(PYTEST_OPTIONS)

clean:
	rm -rf $(VENV) dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
