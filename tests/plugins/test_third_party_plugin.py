"""The examples of plugins of others: their own tests pass from their sources, with nothing installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "third_party_plugin"
CONTAINER = EXAMPLE.parent / "container_plugin"
BACK_END = EXAMPLE.parent / "vendor_backend"


def own_tests(example: Path) -> str:
    """Run an example's tests, which must pass. Gives what they print."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=example, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lines_of(code: str) -> int:
    """How many lines are not empty."""
    return sum(bool(line.strip()) for line in code.splitlines())


def test_the_tests_of_the_example_pass() -> None:
    assert "skipped" not in own_tests(EXAMPLE)


def test_its_plugin_imports_only_public_modules() -> None:
    text = "\n".join(path.read_text() for path in (EXAMPLE / "armature_tinyframe").glob("*.py"))
    imported = {line.split()[1] for line in text.splitlines() if line.startswith(("from armature.", "import armature"))}
    assert imported == {"armature.plugin_api"}


def test_its_library_knows_nothing_of_armature() -> None:
    for path in (EXAMPLE / "tinyframe").glob("*.py"):
        code = path.read_text().partition('"""')[2].partition('"""')[2]
        assert "armature" not in code, path


def test_the_example_of_a_container_works_and_is_short() -> None:
    own_tests(CONTAINER)
    plugin = (CONTAINER / "armature_quantities.py").read_text()
    assert lines_of(plugin) < 60
    imported = [line for line in plugin.splitlines() if "import" in line.split() and "armature" in line]
    assert imported == ["from armature import plugin_api as api"]
    assert "armature" not in (CONTAINER / "quantities.py").read_text()


def test_the_example_of_a_back_end_passes_the_kit_and_is_short() -> None:
    own_tests(BACK_END)
    text = "".join(path.read_text() for path in (BACK_END / "armature_numpy").glob("*.py"))
    assert lines_of(text) < 400
    imported = {line.split()[1] for line in text.splitlines() if line.startswith(("from armature.", "import armature"))}
    assert imported == {"armature.plugin_api", "armature.backend_api"}
