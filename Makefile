# Every target works on a fresh clone with only Python 3.11 or later: it makes its own .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Several test processes, each with one thread of linear algebra.
export OPENBLAS_NUM_THREADS ?= 1
# Tests start many processes: compiled modules are kept, whatever the environment prefers.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test quick runners style lint bench rates streams paper peers migration showcases observed partly-seen fairlearn certificates monitor monitor-peers guarantee fuzz package lowest docs outputs clean

help:
	@echo "make demo    real mortgage files: a policy, a plot, decisions, an audit, a report"
	@echo "make test    linters, type checks, import contract and all tests"
	@echo "make quick   the style, import contract and the fast tests, in a minute"
	@echo "make runners  each experiment, benchmark and showcase in its quick form: that they run"
	@echo "make bench   speed, as ratios measured in one run"
	@echo "make rates   how fast the paper's algorithm learns: table and figure"
	@echo "make streams  how close streams come to the optimum of a known population, optimiser by optimiser"
	@echo "make paper   the paper's experiments: tables and figures"
	@echo "make peers   the race against other libraries"
	@echo "make migration  programs of other libraries beside ours: the tables of the pages on migration"
	@echo "make showcases  seven problems, each a page with figures"
	@echo "make observed   whether rules hold as observed: on new rows, on known populations, in sets of each label"
	@echo "make partly-seen  the same where a tenth of labels and groups was seen"
	@echo "make fairlearn  beside fairlearn, error-parity and OxonFair, on the same rows with the same learners"
	@echo "make certificates  how often certificates are wrong, by simulation, also after several looks and in hard cases"
	@echo "make monitor  how rare false alarms of a monitor are, how soon true ones come beside an oracle, widths, the cost"
	@echo "make monitor-peers  what there is to watch a rule: false alarms, days until a breach is noticed"
	@echo "make guarantee  whether certified rules hold on real rows, 100 splits, and how often they are certified"
	@echo "make fuzz    12,000 random problems: a policy that is optimal, or a conflict that is proved;"
	@echo "             with labels, rules that hold as observed, or a warning that states by how much not"
	@echo "make package  a wheel and an sdist, tried out in bare environments"
	@echo "make lowest  the fast tests with the lowest versions of dependencies"
	@echo "make docs    the documentation with its gallery, into docs/_build, and tests of its pages"
	@echo "make outputs  what snippets of the pages print, written into the pages anew"
	@echo "make setup   only create .venv with everything for development"

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

style: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

lint: style
	$(BIN)/pyright

test: lint $(VENV)/.installed-docs
	$(BIN)/pytest -n auto -m "not experiment and not site"

quick: style
	$(BIN)/pytest -n auto -m "not slow and not experiment and not site"

runners: $(VENV)/.installed-test
	$(BIN)/pytest -n auto -m experiment

bench: $(VENV)/.installed-test
	OPENBLAS_NUM_THREADS= $(BIN)/python benchmarks/core.py
	OPENBLAS_NUM_THREADS= $(BIN)/python benchmarks/stochastic.py
	OPENBLAS_NUM_THREADS= $(BIN)/python benchmarks/frontier.py
	$(BIN)/python benchmarks/cliffs.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/larger_than_memory.py
	$(BIN)/python benchmarks/threads.py
	$(BIN)/python benchmarks/observed.py
	$(BIN)/python -m benchmarks.observed_race
	$(BIN)/python benchmarks/sets.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/decide.py
	$(BIN)/python benchmarks/imports.py

rates: $(VENV)/.installed-test
	$(BIN)/python experiments/rates/run.py

streams: $(VENV)/.installed-test
	$(BIN)/python -m experiments.streams.run

paper: $(VENV)/.installed-test
	$(BIN)/python -m experiments.paper.run

peers: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.peers.run

migration: $(VENV)/.installed-test
	$(BIN)/python -m experiments.migration.run

SHOWCASES := upgrade routing experts referrals sets wages toxicity
showcases: $(VENV)/.installed-test
	for name in $(SHOWCASES); do $(BIN)/python -m experiments.showcases.$$name || exit 1; done

observed: $(VENV)/.installed-test
	$(BIN)/python -m experiments.estimator.observed
	$(BIN)/python -m experiments.estimator.populations
	$(BIN)/python -m experiments.estimator.per_label
	$(BIN)/python -m experiments.estimator.absurd
	$(BIN)/python -m experiments.estimator.equal_terms

partly-seen: $(VENV)/.installed-test
	$(BIN)/python -m experiments.estimator.partly_seen

fairlearn: $(VENV)/.installed-test
	$(BIN)/python -m experiments.estimator.peers
	$(BIN)/python -m experiments.estimator.known_groups

certificates: $(VENV)/.installed-test
	$(BIN)/python -m experiments.certificates.validity
	$(BIN)/python -m experiments.certificates.power
	$(BIN)/python -m experiments.certificates.looks
	$(BIN)/python -m experiments.certificates.hard_cases

monitor: $(VENV)/.installed-test
	$(BIN)/python -m experiments.monitoring.validity
	$(BIN)/python -m experiments.monitoring.delay
	$(BIN)/python -m experiments.monitoring.widths

# The other libraries need an older pandas than the tests have, hence an environment of their own;
# glide-py needs Python 3.12.
WATCH := .venv-peers-watch
$(WATCH)/.installed: pyproject.toml experiments/monitoring/peers.txt
	$(PYTHON) -m venv $(WATCH)
	$(WATCH)/bin/pip install --quiet --upgrade pip
	$(WATCH)/bin/pip install --quiet --requirement experiments/monitoring/peers.txt --editable .
	@touch $@

monitor-peers: $(WATCH)/.installed
	$(WATCH)/bin/python -m experiments.monitoring.peers

guarantee: $(VENV)/.installed-test
	$(BIN)/python -m experiments.certificates.guarantee
	$(BIN)/python -m experiments.certificates.selective
	$(BIN)/python -m experiments.certificates.mapie

fuzz: $(VENV)/.installed-test
	$(BIN)/python -m experiments.fuzz.run
	$(BIN)/python -m experiments.fuzz.options
	$(BIN)/python -m experiments.fuzz.labelled --out experiments/fuzz/results/labelled.txt

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

outputs: $(VENV)/.installed-test
	$(BIN)/python tests/helpers/snippets.py $$(grep -lE '^```text' docs/*.md)

clean:
	rm -rf $(VENV) $(WATCH) $(LOWEST) .venv-bare docs/_build docs/auto_examples docs/sg_execution_times.rst dist out
