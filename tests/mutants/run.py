"""Measures how well the tests protect the product, and compares that with the recorded protection.

It runs the tests once under coverage, if product or tests changed since. Then it runs each mutant
of `sample.jsonl` with the tests that cover its line, and prints one table. The exit status is 1 if
a package has less than `record.jsonl` says.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from mutation import Index, Place, draw, module_name, mutated

ROOT = Path(__file__).parents[2]
SAMPLE, RECORD = Path(__file__).with_name("sample.jsonl"), Path(__file__).with_name("record.jsonl")
WORK = ROOT / ".weft" / "mutants"
SOURCES = ("gateway", "engine_patches", "kernels", "loadgen", "deploy")
PRODUCT = ("gateway", "engine_patches")
# Tests in the process of pytest run first; those with real processes and vLLM only on mutants that
# survive. Tests of the bench and of real agents are left out: they take long and find little.
TIERS = (
    ("tests/contract", "tests/unit"),
    ("tests/scenarios", "tests/engine", "tests/system/gateway"),
)
LEFT_OUT = "tests/unit/loadgen"
MUTANT_S, ALL_S = 60, 7200
# Some branches run only if processes happen to meet.
TOLERANCE = 0.003
# Large packages, imported once.
PRELOADED = ("anthropic", "fastapi", "hypothesis", "openai", "vllm.v1.core.sched.scheduler")
PLUGINS = ("no:cacheprovider", "anyio.pytest_plugin", "_hypothesis_pytestplugin", "respx.plugin")
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
SETTINGS = """[run]
branch = true
parallel = true
core = ctrace
sigterm = true
patch = _exit
context = ${{PYTEST_CURRENT_TEST-}}
data_file = {work}/data
source = {sources}
disable_warnings = no-data-collected, module-not-measured, module-not-imported, trace-changed
"""

# By kind ("module" or "mutant") and name: numbers of covered branches and lines, or an outcome.
Rows = dict[str, dict[str, Any]]


def modules(folders: Iterable[str] = PRODUCT) -> list[Path]:
    """Return the modules in folders."""
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


def package(module: str) -> str:
    """Return the package of a module, at most two levels deep."""
    return ".".join(module.split(".")[:-1][:2]) or module


def environment(root: Path) -> dict[str, str]:
    """Return the environment of tests on the tree at `root`."""
    path = os.pathsep.join(str(root / folder) for folder in (*SOURCES, "tests"))
    return {**os.environ, "PYTHONPATH": path}


def measure(jobs: int) -> None:
    """Run the tests under coverage, unless the last run was of the same product and tests."""
    files = modules((*SOURCES, "tests"))
    fingerprint = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    done, settings = WORK / "fingerprint", WORK / "rc"
    if done.exists() and done.read_text() == fingerprint:
        return
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    sources = "".join(f"\n    {ROOT / folder}" for folder in SOURCES)
    settings.write_text(SETTINGS.format(work=WORK, sources=sources))
    folders = [folder for tier in TIERS for folder in tier if (ROOT / folder).exists()]
    print("measuring coverage: about 40 minutes", flush=True)
    environ = {**environment(ROOT), "COVERAGE_PROCESS_START": str(settings)}
    options = ["-p", "support.contexts", "-n", str(jobs), "--ignore", LEFT_OUT]
    subprocess.run([*PYTEST, *options, *folders], cwd=ROOT, env=environ, check=False)
    combine = [sys.executable, "-m", "coverage"]
    for command in (["combine", "-q"], ["json", "-q", "-i", "-o", str(WORK / "coverage.json")]):
        subprocess.run([*combine, *command, f"--rcfile={settings}"], cwd=ROOT, check=True)
    done.write_text(fingerprint)


def covered() -> dict[str, list[int]]:
    """Return [covered branches, branches, covered lines, lines] by module of the product."""
    files = json.loads((WORK / "coverage.json").read_text())["files"]
    keys = ("covered_branches", "num_branches", "covered_lines", "num_statements")
    return {
        module_name(ROOT, ROOT / name): [file["summary"][key] for key in keys]
        for name, file in sorted(files.items())
        if name.startswith(PRODUCT)
    }


class Tests:
    """The tests that cover lines, with their seconds."""

    def __init__(self) -> None:
        from coverage import CoverageData

        self._data = CoverageData(str(WORK / "data"))
        self._data.read()
        self._seconds: Counter[str] = Counter()
        failed = set()
        for file in (WORK / "tests").iterdir():
            for test, outcome, seconds in map(json.loads, file.read_text().splitlines()):
                self._seconds[test] += seconds
                if outcome != "passed":
                    failed.add(test)
        for test in failed:
            del self._seconds[test]

    def of(self, place: Place) -> list[list[str]] | None:
        """Return the tests of each tier, cheapest first; None if no process ran the statement."""
        contexts = self._data.contexts_by_lineno(str(place.path))
        hit = {test for line in place.lines for test in contexts.get(line, ())}
        if not hit:
            return None
        if hit == {""}:  # It runs only while modules are imported: all tests of the module count.
            hit = {test for tests in contexts.values() for test in tests}
        hit = {re.sub(r" \((setup|call|teardown)\)$", "", test) for test in hit}
        return [self._cheapest(hit, tier) for tier in TIERS]

    def _cheapest(self, tests: set[str], tier: tuple[str, ...]) -> list[str]:
        """Return the tests of a tier that fit into two thirds of a mutant's time."""
        found, files, left = [], set(), MUTANT_S * 2 / 3
        mine = (test for test in tests if test.startswith(tier) and test in self._seconds)
        for test in sorted(mine, key=lambda test: (self._seconds[test], test)):
            file = test.partition("::")[0]
            left -= self._seconds[test] + (0.01 if file in files else 0.3)
            if left > 0:
                found.append(test)
                files.add(file)
        return found


def copied(root: Path) -> Path:
    """Copy the files of the checkout, which never contains a mutant."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(command, cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    return root


def _run_tests(root: Path, options: list[str], output: Any) -> None:
    """Run tests in this process, and end it."""
    os.setpgid(0, 0)
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    os.chdir(root)
    os.environ.update(environment(root))
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    # To find the plugins of all packages takes seconds.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plugins = [f"-p{name}" for name in PLUGINS]
    code = pytest.main([*plugins, "--hypothesis-seed=0", *options])
    sys.stdout.flush()
    os._exit(code)


def play_tests(
    root: Path, tests: list[str], seconds: float, *options: str
) -> tuple[int | None, str]:
    """Run tests in a tree, in a fork of this process, which imports the large packages once.
    Returns the exit code, None if the time was over, and the output. A busy machine gets more time.
    """
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    seconds *= min(4, max(1, os.getloadavg()[0] / (os.cpu_count() or 1)))
    (root / "chosen.txt").write_text("\n".join(tests))
    with tempfile.TemporaryFile("w+") as output:
        arguments = (root, ["--tb=no", "-rfE", *options, "@chosen.txt"], output)
        process = multiprocessing.get_context("fork").Process(target=_run_tests, args=arguments)
        process.start()
        process.join(seconds)
        code = process.exitcode
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        output.seek(0)
        return code, output.read()


def failures(output: str) -> list[str]:
    """Return the tests that failed."""
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)


def play(root: Path, place: Place, mutant: dict, tests: list[list[str]]) -> tuple[str, str]:
    """Run the tests of a mutant. Returns its outcome and the test that killed it."""
    file = root / place.path.relative_to(ROOT)
    end = time.monotonic() + MUTANT_S
    try:
        file.write_text(mutated(place, mutant))
        for tier in tests:
            while tier:
                code, output = play_tests(root, tier, max(1, end - time.monotonic()), "-x")
                if code == 0:
                    break
                if code not in (None, 1, 2):
                    return "unclear", output[-300:]
                test = next(iter(failures(output)), "")
                if code is None or play_tests(root, [test], MUTANT_S)[0] != 0:
                    return ("killed" if code else "timed out"), test
                tier = tier[tier.index(test) + 1 :]  # It failed by chance.
        return "survived", ""
    finally:
        shutil.copy2(place.path, file)


def run(only: str) -> dict[str, tuple[str, str]]:
    """Run the mutants of the modules that match. Returns (outcome, test that failed) by number."""
    tests, index = Tests(), Index(ROOT, modules())
    ends: dict[str, tuple[str, str]] = {}
    deadline = time.monotonic() + ALL_S
    with tempfile.TemporaryDirectory(prefix="weft-mutants-") as folder:
        root = copied(Path(folder))
        for number, mutant in enumerate(map(json.loads, SAMPLE.read_text().splitlines())):
            place = index.find(mutant)
            if not re.search(only, mutant["module"]):
                continue
            if place is None:
                end = ("changed" if mutant["function"] in index.names else "gone"), ""
            elif (chosen := tests.of(place)) is None:
                end = "uncovered", ""
            elif not any(chosen) or time.monotonic() > deadline:
                end = "not run", ""
            else:
                end = play(root, place, mutant, chosen)
            ends[str(number)] = end
            print(f"{number:3} {mutant['module']}:{mutant['function']}", *end, flush=True)
        # A test that fails without a mutant has killed none.
        killers = sorted({test for end, test in ends.values() if end == "killed" and test})
        wrong = failures(play_tests(root, killers, 900)[1]) if killers else []
    return {number: ("unclear", t) if t in wrong else (end, t) for number, (end, t) in ends.items()}


def compare(before: Rows, now: Rows) -> int:
    """Print the table. Modules and mutants that are gone do not count, before or now. Returns the
    number of packages that have less."""
    successors = defaultdict(list)
    for module in now["module"]:
        successors[module.rpartition(".")[2]].append(module)
    rows: dict[str, dict[str, Counter]] = defaultdict(lambda: defaultdict(Counter))
    for module, numbers in before["module"].items():
        same = [module] if module in now["module"] else successors[module.rpartition(".")[2]]
        if len(same) == 1:
            for when, (hit, of, *_) in (("before", numbers), ("now", now["module"][same[0]])):
                rows[package(same[0])][when].update(covered=hit, branches=of)
    sample, index = list(map(json.loads, SAMPLE.read_text().splitlines())), Index(ROOT, modules())
    for number, (end, _) in now["mutant"].items():
        if (place := index.find(sample[int(number)])) is not None:
            rows[package(place.module)]["before"][before["mutant"][number][0]] += 1
            rows[package(place.module)]["now"][end] += 1
    for row in list(rows.values()):
        for when, counts in row.items():
            rows["all"][when].update(counts)
    print(f"\n{'package':30}{'branches covered':>20}{'mutants killed':>20}")
    weaker = 0
    for name, row in sorted(rows.items()):
        shares = []
        for counts in (row["before"], row["now"]):
            tried = counts["killed"] + counts["survived"] + counts["uncovered"]
            for part, whole in (("covered", counts["branches"]), ("killed", tried)):
                shares.append(counts[part] / whole if whole else 1)
        less = shares[2] < shares[0] - TOLERANCE or shares[3] < shares[1]
        weaker += less
        line = "{:30}{:12.1%} -> {:6.1%}{:10.1%} -> {:6.1%}{}"
        mark = "  less" if less else ""
        print(line.format(name, shares[0], shares[2], shares[1], shares[3], mark))
    print("mutants now:", dict(Counter(end for end, _ in now["mutant"].values())))
    return weaker


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--jobs", type=int, default=2, help="test processes under coverage")
    add("--only", default="", help="run the mutants of modules that match")
    add("--record", action="store_true", help="record the result")
    add("--draw", action="store_true", help="draw a new sample, and run nothing")
    add("--without", default="$^", help="draw no function (module:name) that matches")
    chosen = parser.parse_args()
    if chosen.draw:
        drawn = draw(ROOT, modules(), chosen.without, count=150, seed=1)
        SAMPLE.write_text("".join(json.dumps(mutant) + "\n" for mutant in drawn))
        return 0
    measure(chosen.jobs)
    os.nice(10)
    now = {"module": covered(), "mutant": run(chosen.only)}
    if chosen.record:
        rows = [{kind: key, "is": value} for kind in now for key, value in now[kind].items()]
        RECORD.write_text("".join(json.dumps(row) + "\n" for row in rows))
    before: Rows = {"module": {}, "mutant": {}}
    for row in map(json.loads, RECORD.read_text().splitlines()):
        kind = "module" if "module" in row else "mutant"
        before[kind][row[kind]] = row["is"]
    return 1 if compare(before, now) else 0


if __name__ == "__main__":
    sys.exit(main())
