"""What the README and the docs tell people to run is run here."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from armature.rules import Decision
from armature.rules.project import project_rules
from tests.support import forked

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BIN = Path(sys.executable).parent


@attrs.frozen
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page, line, match[1], match[2]))
    return [b for b in found if b.language in languages]


def commands() -> list[tuple[str, str]]:
    found = {}
    for block in blocks("sh"):
        for line in block.text.splitlines():
            command = line.split("  #")[0].split(" #")[0].strip()
            if command and not command.startswith("#"):
                found.setdefault(command, f"{block}")
    return list(found.items())


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A folder of kernels for all of them, which is not the user's."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "ARMATURE_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_block_runs(block: Block, tmp_path: Path, environment: dict[str, str]) -> None:
    script = tmp_path / "block.py"
    script.write_text(block.text)
    done = forked.run([script], tmp_path, environment)
    assert done.returncode == 0, done.stderr


def test_a_block_runs_as_a_process_of_its_own(tmp_path: Path, environment: dict[str, str]) -> None:
    script = tmp_path / "block.py"
    script.write_text(blocks("python")[0].text)
    command, variables = [sys.executable, str(script)], os.environ | environment
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def quick_and_long(command: str, where: str) -> Any:
    """The demo runs all examples: that is for the long tests."""
    return pytest.param(command, where, marks=pytest.mark.slow if command.startswith("armature demo") else ())


@pytest.mark.parametrize(
    ("command", "where"), [quick_and_long(*found) for found in commands()], ids=lambda v: v if " " in v else ""
)
def test_command_runs(command: str, where: str, tmp_path: Path, environment: dict[str, str]) -> None:
    words = shlex.split(command)
    if words[0] == "make":  # a make target would run this very test: that it exists and expands is what is checked
        dry = [*words, "--dry-run"]
        done = subprocess.run(dry, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    inside = tmp_path if "new" in words else ROOT
    done = forked.run(words, inside, environment)
    assert done.returncode == 0, f"{where}: {command}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.strip()


def test_the_demo_of_one_model(tmp_path: Path, environment: dict[str, str]) -> None:
    done = forked.run(["armature", "demo", "--models", "LeNet", "--json", "demo.json"], tmp_path, environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows = json.loads((tmp_path / "demo.json").read_text())["rows"]
    assert [(row["model"], row["mode"]) for row in rows] == [("LeNet", "infer"), ("LeNet", "train")]


@pytest.mark.parametrize("block", [b for b in blocks("toml") if "tool.armature" in b.text], ids=str)
def test_project_file_is_read(block: Block, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(block.text)
    rules = project_rules(tmp_path)
    assert {rule.decision for rule in rules} == set(Decision)
    assert all(f'"{rule.target}"' in block.text.splitlines()[rule.origin.line - 1] for rule in rules if rule.origin)


def test_there_is_something_to_run() -> None:
    assert len(blocks("python")) >= 8
    assert len(commands()) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(
        re.findall(
            r"`((?:core|plugins|tests|trace|frame|graph|lower|schedule|run|torch_abi|pipeline)/[\w/.]+?\.py)`", text
        )
    )
    named |= set(re.findall(r"`((?:core|tests)/[\w/]+/)`", text))
    assert len(named) > 40
    assert [name for name in sorted(named) if not ((ROOT / name).exists() or (ROOT / "core" / name).exists())] == []


def test_folders_of_the_core_are_on_the_map() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    drawn = text.split("```text\ncore/")[1].split("```")[0]
    folders = [path.name for folder in ("core", "core/trace") for path in (ROOT / folder).iterdir() if path.is_dir()]
    modules = [path.name for path in (ROOT / "core").glob("*.py") if path.name != "__init__.py"]
    assert [
        name for name in (*folders, *modules) if name != "__pycache__" and not re.search(rf"\b{name}\b", drawn)
    ] == []


def test_modules_of_the_core_are_in_its_table() -> None:
    """All but those of `core/trace` itself, which are drawn."""
    table = (ROOT / "docs" / "architecture.md").read_text().partition("## Every module\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(core[\w/]*)` \| (.*) \|$", table, re.MULTILINE)
    there: dict[str, list[str]] = {}
    for path in sorted((ROOT / "core").rglob("*.py")):
        if path.stem != "__init__" and "templates" not in path.parts and path.parent != ROOT / "core/trace":
            there.setdefault(str(path.parent.relative_to(ROOT)), []).append(path.stem)
    assert {folder: sorted(re.findall(r"`(\w+)`", told)) for folder, told in rows} == there


def test_rooms_of_tracing_are_drawn_in_the_order_of_their_imports() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter-annotations")
    layers = contracts["importlinter:contract:rooms-of-tracing"]["layers"].strip().splitlines()
    text = (ROOT / "docs" / "architecture.md").read_text()
    drawn = text.split("core/trace/ ", 1)[1].split("```")[0].splitlines()[1:]
    names = [re.split(r"\s{2,}", line.strip())[0].split() for line in drawn]
    assert [{name.rstrip("/") for name in line} for line in names] == [set(layer.split(" | ")) for layer in layers]
    folders = {path.name for path in (ROOT / "core/trace").iterdir() if path.is_dir()} - {"__pycache__"}
    assert {name.rstrip("/") for line in names for name in line if name.endswith("/")} == folders
