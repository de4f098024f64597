"""The example of a third-party plugin: its own tests pass from its sources, with nothing installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "third_party_plugin"
CONTAINER = EXAMPLE.parent / "container_plugin"


def test_the_tests_of_the_example_pass() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_its_plugin_imports_only_public_modules() -> None:
    text = "\n".join(path.read_text() for path in (EXAMPLE / "armature_tinyframe").glob("*.py"))
    imported = {line.split()[1] for line in text.splitlines() if line.startswith(("from armature.", "import armature"))}
    assert imported == {"armature.plugin_api"}


def test_its_library_knows_nothing_of_armature() -> None:
    for path in (EXAMPLE / "tinyframe").glob("*.py"):
        code = path.read_text().partition('"""')[2].partition('"""')[2]
        assert "armature" not in code, path


def test_the_example_of_a_container_works_and_is_short() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=CONTAINER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    plugin = (CONTAINER / "armature_quantities.py").read_text()
    assert sum(bool(line.strip()) for line in plugin.splitlines()) < 60
    imported = [line for line in plugin.splitlines() if "import" in line.split() and "armature" in line]
    assert imported == ["from armature import plugin_api as api"]
    assert "armature" not in (CONTAINER / "quantities.py").read_text()
