"""`armature plugins new`: the distribution it makes is sound, and its own tests pass."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from armature.cli.scaffold import scaffold, templates
from armature.errors import BadPluginName, PathTaken


def test_a_new_plugin_passes_its_own_tests(tmp_path: Path) -> None:
    made = scaffold("My-Lib", tmp_path)
    assert made.folder == tmp_path / "armature-my-lib"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(made.folder)],
        cwd=made.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_a_new_plugin_declares_itself(tmp_path: Path) -> None:
    made = scaffold("armature-mylib", tmp_path)
    project = tomllib.loads((made.folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "armature-mylib"
    assert project["project"]["entry-points"]["armature"] == {"mylib": "armature_mylib.plugin"}
    assert any(need.startswith("torch-armature>=") for need in project["project"]["dependencies"])
    assert Path("armature_mylib/plugin.py") in made.files


def test_a_new_plugin_is_python_and_imports_only_public_modules(tmp_path: Path) -> None:
    made = scaffold("mylib", tmp_path)
    for file in made.files:
        text = (made.folder / file).read_text()
        assert "{{" not in text and "{%" not in text
        if file.suffix == ".py" and file.parts[0] == "armature_mylib":
            imported = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
            assert {name for name in imported if name and name.startswith("armature.")} <= {"armature.plugin_api"}


def test_templates_come_with_the_package() -> None:
    names = [name for name, _ in templates()]
    assert {"pyproject.toml", "README.md", "package/plugin.py", "tests/test_conformance.py"} <= set(names)


@pytest.mark.parametrize("name", ["", "9lib", "my lib", "../up", "a/b", "-x"])
def test_a_name_that_is_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadPluginName):
        scaffold(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "armature-mylib").mkdir()
    with pytest.raises(PathTaken, match="armature-mylib"):
        scaffold("mylib", tmp_path)
    assert list((tmp_path / "armature-mylib").iterdir()) == []
