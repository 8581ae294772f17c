# Every target works on a fresh clone with only Python 3.11 or later: it makes its own .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Several test processes, each with one thread of linear algebra.
export OPENBLAS_NUM_THREADS ?= 1
# Tests start many processes: compiled modules are kept, whatever the environment prefers.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test quick lint runners experiment bench package lowest docs clean

help:
	@echo "make demo        real mortgage files: a policy, a plot, decisions, an audit, a report"
	@echo "make test        linters, type checks, import contract and all tests"
	@echo "make quick       the style, import contract and the fast tests, in a minute"
	@echo "make docs        the documentation with its gallery, into docs/_build, and tests of its pages"
	@echo "make bench       speed, as ratios measured in one run"
	@echo "make experiment  NAME=...: an experiment; without a name, a list of all"
	@echo "make runners     each experiment, benchmark and showcase in its quick form, to see that they run"
	@echo "make package     a wheel and an sdist, tried out in bare environments"
	@echo "make lowest      the fast tests with the lowest versions of dependencies"
	@echo "make setup       only create .venv with everything for development"
	@echo "make clean       remove environments and everything that was built"

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.installed-%: $(BIN)/pip pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$*]'
	@touch $@

setup: $(VENV)/.installed-test $(VENV)/.installed-docs

demo: $(VENV)/.installed-demo
	$(BIN)/python examples/mortgages.py
	$(BIN)/bylaw demo out

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

test: lint $(VENV)/.installed-docs
	$(BIN)/pytest -n auto -m "not experiment and not site"

quick: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pytest -n auto -m "not slow and not experiment and not site"

runners: $(VENV)/.installed-test
	$(BIN)/pytest -n auto -m experiment

experiment: $(VENV)/.installed-test
	$(BIN)/python -m experiments $(NAME)

# The core runs with all threads of linear algebra, the others with one.
bench: $(VENV)/.installed-test
	for name in core stochastic frontier; do OPENBLAS_NUM_THREADS= $(BIN)/python benchmarks/$$name.py || exit 1; done
	for name in cliffs growth larger_than_memory threads observed sets audit decide imports; do \
	  $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python -m benchmarks.observed_race

# A wheel and an sdist, each installed in a bare environment, which passes a smoke test.
package: $(BIN)/pip
	rm -rf dist && $(BIN)/pip install --quiet build && $(BIN)/python -m build --outdir dist . >/dev/null
	for file in dist/*.whl dist/*.tar.gz; do \
	  rm -rf .venv-bare && $(PYTHON) -m venv .venv-bare \
	  && .venv-bare/bin/pip install --quiet --constraint constraints.txt $$file \
	  && (cd dist && ../.venv-bare/bin/python ../tests/distribution/smoke.py) || exit 1; done
	rm -rf .venv-bare
	@echo "dist holds a wheel and an sdist; both install and work"

# The lowest versions that pyproject.toml admits, and the fast tests of what needs nothing newer.
LOWEST := .venv-lowest
lowest: pyproject.toml
	rm -rf $(LOWEST) && $(PYTHON) -m venv $(LOWEST)
	$(PYTHON) tests/distribution/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/pip install --quiet --constraint $(LOWEST)/constraints.txt --editable '.[all,polars]' \
	  duckdb pytest pytest-xdist hypothesis
	$(LOWEST)/bin/pytest -n auto -m "not slow and not experiment" -W default $(LOWEST_TESTS)
LOWEST_TESTS := tests/_base tests/language tests/rows tests/calibration tests/program tests/solvers tests/policy \
  tests/testing tests/reductions tests/fitting tests/estimators tests/cli

docs: $(VENV)/.installed-test $(VENV)/.installed-docs
	$(BIN)/sphinx-build -W -q -b html docs docs/_build
	$(BIN)/python docs/print_cheatsheet.py docs/_build
	$(BIN)/pytest -m site tests/docs/test_site.py
	@echo "open docs/_build/index.html"

clean:
	rm -rf $(VENV) .venv-* docs/_build docs/auto_examples docs/sg_execution_times.rst dist out
