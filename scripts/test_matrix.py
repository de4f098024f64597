"""Runs the suite on several versions of Python and torch, each in an environment of its own, and prints a table.

    make test-matrix
    make test-matrix MATRIX="3.12-2.15.0" ARGS="tests/trace -x"

An entry is PYTHON-TORCH; its environment is .venvs/PYTHON-TORCH, made the first time and kept. Interpreters are those
on PATH by the name of pythonX.Y, then those of pyenv. What is missing is named, and counts as a failure.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".venvs"
PASSED = "passed"
FAST = "not slow and not sweep and not gpu"
ENTRY = re.compile(r"(3\.\d+)-(\d+\.\d+\.\d+\S*)")
WHO_ARE_YOU = "import sys; print('%d.%d' % sys.version_info[:2])"


@attrs.frozen
class Entry:
    """A version of Python with one of torch."""

    python: str  # "3.12"
    torch: str  # "2.13.0"

    @property
    def name(self) -> str:
        return f"{self.python}-{self.torch}"

    @property
    def environment(self) -> Path:
        return ENVIRONMENTS / self.name

    @classmethod
    def parse(cls, text: str) -> Entry:
        """Raises argparse.ArgumentTypeError."""
        match = ENTRY.fullmatch(text)
        if match is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not PYTHON-TORCH, as in 3.12-2.13.0")
        return cls(match[1], match[2])


@attrs.frozen
class Result:
    """What became of an entry. counts: tests by outcome, as pytest's report has them."""

    entry: Entry
    outcome: str
    counts: dict[str, int] = attrs.field(factory=dict)


def candidates(python: str, path: str, pyenv: Path) -> Iterator[str]:
    """Programs that may be this version of Python, the preferred ones first."""
    for folder in path.split(os.pathsep):
        found = shutil.which(f"python{python}", path=folder)
        if found is not None:
            yield found
    patches = [(int(home.name.rpartition(".")[2]), home) for home in pyenv.glob(f"versions/{python}.*") if plain(home)]
    yield from (str(home / "bin" / "python") for _, home in sorted(patches, reverse=True))


def plain(home: Path) -> bool:
    """Whether a folder of pyenv is a released Python: not a development build, and no virtual environment."""
    return re.fullmatch(r"3\.\d+\.\d+", home.name) is not None


def interpreter(python: str, path: str, pyenv: Path) -> str | None:
    """The first candidate that runs and is this version: a shim of pyenv may stand for one that is not active."""
    for program in candidates(python, path, pyenv):
        try:
            found = subprocess.run([program, "-c", WHO_ARE_YOU], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if found.returncode == 0 and found.stdout.strip() == python:
            return program
    return None


def is_current(stamp: Path, sources: Iterable[Path]) -> bool:
    """Whether an environment was made after the last change to what it is made from."""
    return stamp.exists() and all(source.stat().st_mtime <= stamp.stat().st_mtime for source in sources)


def surroundings() -> dict[str, str]:
    """The caller's environment variables, but not one that puts other code before what is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def prepare(entry: Entry, python: str, plugins: tuple[str, ...]) -> bool:
    """Make the environment, unless it is there; whether it is."""
    stamp = entry.environment / ".installed"
    declared = [ROOT / "pyproject.toml", *(ROOT / "plugins" / name / "pyproject.toml" for name in plugins)]
    if is_current(stamp, declared):
        return True
    settings = {
        "PYTHON": python,
        "VENV": str(entry.environment),
        "TORCH": f"torch=={entry.torch}",
        "PLUGINS": " ".join(plugins),
    }
    made = subprocess.run(["sh", "scripts/setup.sh"], cwd=ROOT, env={**surroundings(), **settings}, check=False)
    if made.returncode == 0:
        stamp.touch()
    return made.returncode == 0


def test(entry: Entry, jobs: int, args: list[str]) -> Result:
    """Run the suite in the entry's environment."""
    report = entry.environment / "report.xml"
    report.unlink(missing_ok=True)
    command = [
        str(entry.environment / "bin" / "python"), "-m", "pytest", "-m", FAST, "-n", str(jobs), "--dist", "loadfile",
        f"--junitxml={report}", *args,
    ]  # fmt: skip
    code = subprocess.run(command, cwd=ROOT, env=surroundings(), check=False).returncode
    return Result(entry, PASSED if code == 0 else f"failed (pytest: {code})", counts_of(report))


def counts_of(report: Path) -> dict[str, int]:
    """Numbers of tests by outcome, from a report of pytest; none where it wrote no report."""
    if not report.exists():
        return {}
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    numbers = {
        key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    }
    broken = numbers["failures"] + numbers["errors"]
    return {
        "passed": numbers["tests"] - broken - numbers["skipped"],
        "failed": broken,
        "skipped": numbers["skipped"],
    }


def outcome_of(entry: Entry, plugins: tuple[str, ...], jobs: int, args: list[str]) -> Result:
    """Prepare and test one entry."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    python = interpreter(entry.python, os.environ.get("PATH", ""), pyenv)
    if python is None:
        return Result(entry, f"missing: no python{entry.python} on PATH or in {pyenv}")
    if not prepare(entry, python, plugins):
        return Result(entry, f"no environment: torch {entry.torch} could not be installed")
    return test(entry, jobs, args)


def table(results: list[Result]) -> Table:
    """One row an entry."""
    made = Table(title="Suite by version")
    for column in ("Python", "torch", "passed", "failed", "skipped", "outcome"):
        made.add_column(column, overflow="fold")
    for result in results:
        counts = (str(result.counts.get(key, "-")) for key in ("passed", "failed", "skipped"))
        made.add_row(result.entry.python, result.entry.torch, *counts, result.outcome)
    return made


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entries", nargs="+", type=Entry.parse, metavar="PYTHON-TORCH")
    parser.add_argument("--plugins", required=True, help="folders of plugins/ to install, with spaces between")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests side by side")
    end = argv.index("--") if "--" in argv else len(argv)
    chosen, args = parser.parse_args(argv[:end]), argv[end + 1 :]  # the rest is for pytest
    console = Console()
    results = []
    for entry in chosen.entries:
        console.rule(f"Python {entry.python}, torch {entry.torch}")
        results.append(outcome_of(entry, tuple(chosen.plugins.split()), chosen.jobs, args))
        console.print(f"{entry.name}: {results[-1].outcome}")
    console.print(table(results))
    return 0 if all(result.outcome == PASSED for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
