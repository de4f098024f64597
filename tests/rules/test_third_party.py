"""Two plugins that disagree, installed by pip as users install them: who wins, who lost, and what matches nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "armature-{name}"
version = "1.0"
[project.entry-points.armature]
{name} = "armature_{name}"
[tool.setuptools]
py-modules = ["armature_{name}"]
"""
GENTLE = """
from armature.plugin_api import Decision, Rule, hookimpl

@hookimpl
def armature_rules():
    return [
        Rule("tinylib.load", Decision.INLINE, "the gentle plugin traces it"),
        Rule("tinylib.save", Decision.INLINE, "the gentle plugin traces this too"),
        Rule("tinylib.scale", Decision.IN_GRAPH, "for versions to come", requires="tinylib>=2"),
        Rule("tinylib.scale", Decision.INLINE, "for the version of today", requires="tinylib>=1,<2"),
        Rule("tinylib.gone", Decision.SKIP, "it was there once"),
    ]
"""
STERN = """
from armature.plugin_api import Decision, Rule, hookimpl

@hookimpl
def armature_rules():
    import tinylib
    return [
        Rule("tinylib.load", Decision.SKIP, "the stern plugin knows that it reads files", priority=5),
        Rule(tinylib.save, Decision.SKIP, "the stern plugin names it as an object", priority=1),
        Rule("no_such_library.f", Decision.SKIP, "for a library that is not here"),
    ]
"""
LIBRARY = """
def load(x): return x
def save(x): return x
def scale(x): return x
"""
ASK = """
import json
import armature

def told(name):
    w = armature.why(name)
    lost = [[v.decision.value, v.reason, v.origin.plugin] for v in w.overruled]
    return [w.decision.value, w.reason, w.origin.plugin, w.origin.line, lost]

print(json.dumps({name: told(name) for name in ("tinylib.load", "tinylib.save", "tinylib.scale")}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process in which the two plugins and the library are installed."""
    root = tmp_path_factory.mktemp("third_party")
    for name, source in (("gentle", GENTLE), ("stern", STERN)):
        folder = root / name
        folder.mkdir()
        (folder / "pyproject.toml").write_text(PROJECT.format(name=name))
        (folder / f"armature_{name}.py").write_text(source)
    library = root / "tinylib"
    library.mkdir()
    text = PROJECT.replace("armature-{name}", "tinylib").partition("[project.entry-points")[0]
    (library / "pyproject.toml").write_text(f'{text}[tool.setuptools]\npy-modules = ["tinylib"]\n')
    (library / "tinylib.py").write_text(LIBRARY)
    target = root / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    folders = [str(root / name) for name in ("gentle", "stern", "tinylib")]
    done = subprocess.run([*pip, "--target", str(target), *folders], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    path = os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path, "ARMATURE_STRICT": "0"}


def run(environment: dict[str, str], cwd: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_why_names_the_winner_and_the_loser(installed: dict[str, str], tmp_path: Path) -> None:
    told: dict[str, list[Any]] = json.loads(run(installed, tmp_path, "-c", ASK))
    load, save, scale = told["tinylib.load"], told["tinylib.save"], told["tinylib.scale"]
    assert load[:3] == ["skip", "the stern plugin knows that it reads files", "armature-stern"]
    assert load[3] > 0
    assert load[4] == [["inline", "the gentle plugin traces it", "armature-gentle"]]
    assert save[:3] == ["skip", "the stern plugin names it as an object", "armature-stern"]
    assert save[4] == [["inline", "the gentle plugin traces this too", "armature-gentle"]]
    assert scale[:3] == ["inline", "for the version of today", "armature-gentle"]


def test_doctor_shows_conflicts_and_rules_without_effect(installed: dict[str, str], tmp_path: Path) -> None:
    said = json.loads(
        run(installed, tmp_path, "-c", "from armature.cli.app import main; main()", "plugins", "doctor", "--json")
    )
    assert said["ok"], said
    by_name, by_object = sorted(line for line in said["overrides"] if "tinylib" in line)
    assert by_name.startswith("rule of tinylib.load: armature-stern")
    assert "wins over armature-gentle" in by_name
    assert by_object.startswith("rule of tinylib.save")
    assert by_object.index("armature-stern") < by_object.index("armature-gentle")
    unmatched = set(said["unmatched_rules"])
    assert {"tinylib.gone does not exist here", "no_such_library.f does not exist here"} <= unmatched
    assert "it is for tinylib>=2, and tinylib 1.0 is installed" in unmatched


def test_without_one_of_them_the_other_decides(installed: dict[str, str], tmp_path: Path) -> None:
    told = json.loads(run(installed | {"ARMATURE_DISABLE_PLUGINS": "stern"}, tmp_path, "-c", ASK))
    assert told["tinylib.load"][:3] == ["inline", "the gentle plugin traces it", "armature-gentle"]
    assert told["tinylib.load"][4] == []
