"""The figures of benchmarks/rules.py: here only that they are of the right size, on whatever machine runs the tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LOOKS_FOR_SOURCE = """
import inspect
from armature import plugins
looked = []
tables = plugins.manager().tables()  # which imports the plugins, and with them modules of torch that look for theirs
inspect.getmodule = lambda *args: looked.append(args)
tables.rule_book.verdict(len)
print(len(looked))
"""

ROOT = Path(__file__).resolve().parents[2]


def test_first_and_later_lookups(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.rules", "--runs", "2", "--json", str(written)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "the first, tables and all" in done.stdout
    figures = json.loads(written.read_text())
    assert figures["tables_read_by_import"] == 0
    assert figures["rules"] > 2_500
    assert figures["first_ms"] < 4 * figures["budget"]["first_ms"]
    slow = {kind: ns for kind, ns in figures["cached_ns"].items() if ns > 4 * figures["budget"]["cached_ns"]}
    assert slow == {}


def test_no_table_looks_for_source() -> None:
    """Which takes 20 ms, and more the more modules there are."""
    done = subprocess.run([sys.executable, "-c", LOOKS_FOR_SOURCE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]
