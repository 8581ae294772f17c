"""Measure the size and shape of the source: `python tools/measure_source.py [--calls]`.

Prints lines, files, classes, numeric constants, private names, the longest chain of imports, and the share of
docstrings that begin with a verb; by package and in all. With `--calls`, also counts the modules whose code
runs in a solve, in a fit of the classifier, and in `bylaw fit --report`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
LIMITS = {
    "lines": 37_000,
    "files": 230,
    "classes": 280,
    "constants": 250,
    "private names": 900,
    "import chain": 22,
}
LEAST_VERBS = 0.85
NUMBER = re.compile(r"^_?[A-Z][A-Z0-9_]* = [-(]?[0-9.]")
# Beginnings of docstrings that are not verbs in the imperative.
NO_VERB = re.compile(
    r"(the|a|an|of|what|whether|where|which|who|how|if|as|by|with|without|in|on|at|for|from|to|it|its|one|two|"
    r"all|each|every|any|some|no|none|this|that|these|those|such|and|or|also|only|so|is|are|there|\w+s|\w+ed)\b",
    re.IGNORECASE,
)
ENDS_IN_S = {"address", "assess", "bias", "compress", "cross", "express", "pass", "process"}


def list_modules() -> dict[str, Path]:
    """Map the names of modules to their files."""
    named = {}
    for path in sorted((SOURCE / "bylaw").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def count_module(path: Path) -> Counter[str]:
    """Count lines, classes, constants, private names and docstrings of one module."""
    text = path.read_text()
    tree = ast.parse(text)
    found = Counter(lines=text.count("\n"), files=1)
    found["constants"] = sum(bool(NUMBER.match(line)) for line in text.splitlines())
    found["classes"] = sum(isinstance(node, ast.ClassDef) for node in ast.walk(tree))
    found["private names"] = sum(name.startswith("_") and name[:2] != "__" for name in list_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            words = (ast.get_docstring(node) or "").split()
            if words and not any("property" in ast.unparse(one) for one in node.decorator_list):
                found["docstrings"] += 1
                found["verbs"] += words[0].lower() in ENDS_IN_S or not NO_VERB.match(words[0])
    return found


def list_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines at its top level."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one.id for one in targets if isinstance(one, ast.Name))


def find_longest_chain(modules: dict[str, Path]) -> list[str]:
    """Return the longest chain of modules each of which imports the next when it is imported.

    A name that is imported from a package counts as imported from the module that defines it.
    """
    homes = {
        f"{name}.{one.name}": f"{name}.{node.module}"
        for name, path in modules.items()
        if (stub := path.with_suffix(".pyi")).exists()
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }
    imported: dict[str, set[str]] = {}
    for name, path in modules.items():
        imported[name] = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bylaw"):
                for one in node.names:
                    whole = f"{node.module}.{one.name}"
                    home = homes.get(whole, whole)
                    imported[name].add(home if home in modules else str(node.module))
            elif isinstance(node, ast.Import):
                imported[name].update(one.name for one in node.names)
    longest: dict[str, list[str]] = {}

    def follow(name: str, above: tuple[str, ...] = ()) -> list[str]:
        if name in above:
            return []
        if name not in longest:
            chains = [follow(one, (*above, name)) for one in imported[name] if one in modules and one != name]
            longest[name] = [name, *max(chains, key=len, default=[])]
        return longest[name]

    return max((follow(name) for name in modules), key=len)


def count_called_modules(call: Callable[[], Any]) -> tuple[int, int]:
    """Return how many modules of bylaw run code while `call` runs, and how often policies are fitted."""
    from bylaw.reductions import Fitter

    called: set[str] = set()
    fits = 0

    def watch(frame: Any, event: str, _: Any) -> None:
        nonlocal fits
        if event == "call":
            name = frame.f_globals.get("__name__", "")
            if name.startswith("bylaw") and frame.f_code.co_name != "<module>":
                called.add(name)
                fits += frame.f_code is Fitter.fit.__code__

    sys.setprofile(watch)
    threading.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(called), fits


def measure_calls() -> dict[str, tuple[int, int]]:
    """Count called modules of a solve, of a fit of the classifier, and of `bylaw fit --report`."""
    import numpy as np
    import pandas
    from sklearn.linear_model import LogisticRegression

    from bylaw import ConstrainedClassifier, Evidence, Problem, demographic_parity, error, solve
    from bylaw.cli import main as bylaw

    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(600, 3)), rng.choice(["a", "b"], 600)
    y = (X[:, 0] + (groups == "a") + rng.normal(size=600) > 0).astype(int)
    model = LogisticRegression().fit(X, y)
    rows = Evidence(model.predict_proba(X), groups={"g": groups})
    rules = [demographic_parity("g", tol=0.05)]
    found = {"solve": count_called_modules(lambda: solve(Problem(error(), rules), rows))}
    classifier = ConstrainedClassifier(LogisticRegression(), rules)
    found["classifier"] = count_called_modules(lambda: classifier.fit(X, y, sensitive_features={"g": groups}))
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "scores.parquet"
        scores = pandas.DataFrame(model.predict_proba(X), columns=["p_0", "p_1"]).assign(g=groups)
        scores.to_parquet(table)
        arguments = ["fit", str(table), "--rule", "demographic_parity('g', tol=0.05)", "--rule"]
        arguments += ["rejected() <= 0.1", "-o", f"{folder}/policy.json", "--report", f"{folder}/report.html"]

        def run() -> None:
            try:
                sys.argv = ["bylaw", *arguments]
                bylaw()
            except SystemExit as end:
                if end.code:
                    raise

        found["bylaw fit --report"] = count_called_modules(run)
    return found


def main() -> int:
    """Print the measures; return 1 if one of them is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true", help="also trace which modules run")
    parser.add_argument("--chain", action="store_true", help="also print the longest chain of imports")
    arguments = parser.parse_args()
    modules = list_modules()
    packages: dict[str, Counter[str]] = {}
    for name, path in modules.items():
        package = name.split(".")[1] if path.parent != SOURCE / "bylaw" else "."
        packages.setdefault(package, Counter()).update(count_module(path))
    total = sum(packages.values(), Counter())
    for name, found in [*packages.items(), ("in all", total)]:
        share = found["verbs"] / max(found["docstrings"], 1)
        columns = [f"{found[column]:6,}" for column in list(LIMITS)[:-1]]
        print(f"{name:12}", *columns, f"{share:5.0%}")
    chain = find_longest_chain(modules)
    print(f"lines, files, classes, constants, private names, verbs first; longest import chain: {len(chain)}")
    if arguments.chain:
        print("\n".join(chain))
    if arguments.calls:
        for name, (count, fits) in measure_calls().items():
            print(f"{name}: {count} modules called, {fits} fits")
    beyond = [name for name, most in LIMITS.items() if {**total, "import chain": len(chain)}[name] > most]
    if total["verbs"] < LEAST_VERBS * total["docstrings"]:
        beyond.append("docstrings that begin with a verb")
    print(f"beyond its limit: {', '.join(beyond)}" if beyond else "all within their limits")
    return int(bool(beyond))


if __name__ == "__main__":
    raise SystemExit(main())
