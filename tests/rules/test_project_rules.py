"""`[tool.armature.rules]` in pyproject.toml: found from the working directory upwards, read, and checked with lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import armature
from armature import plugins
from armature.api import public as api
from armature.rules import Decision
from armature.rules.errors import BadProjectRule
from armature.rules.project import FILE, project_rules
from tests.support import forked

GOOD = """
[project]
name = "mine"  # "json.loads" in a comment is nothing

[tool.armature.rules]
# "json.dumps" neither
skip = [
    "json.dumps",
    { name = "json.JSONEncoder#encode", reason = "makes text" },
]
inline = [{ name = "json.loads", requires = "torch>=1" }, 'json.load']
in_graph = []
"""


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(text)
    return folder / FILE


def test_rules_with_reason_requirement_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    rules = project_rules(tmp_path)
    assert [(rule.target, rule.decision) for rule in rules] == [
        ("json.dumps", Decision.SKIP),
        ("json.JSONEncoder#encode", Decision.SKIP),
        ("json.loads", Decision.INLINE),
        ("json.load", Decision.INLINE),
    ]
    assert [rule.origin.line for rule in rules if rule.origin] == [8, 9, 11, 11]
    assert all(rule.origin and rule.origin.file == str(path) for rule in rules)
    assert rules[1].reason == "makes text" and FILE in rules[0].reason
    assert rules[2].requires == "torch>=1"


@pytest.mark.parametrize(
    "text",
    [
        'tool.armature.rules.skip = ["json.dumps"]',
        'tool.armature.rules = { skip = ["json.dumps"] }',
        '[tool]\narmature = { rules = { skip = ["json.dumps"] } }',
        '[tool.armature]\nrules.skip = ["json.dumps"]',
    ],
)
def test_every_way_that_toml_has_to_write_a_table(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    (rule,) = project_rules(tmp_path)
    assert rule.target == "json.dumps" and rule.origin is not None
    assert rule.origin.line == text.count("\n") + 1


def test_the_nearest_file_with_the_section_upwards(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path / "a", "[project]\nname = 'other'")
    write(tmp_path / "a" / "b", "this is no TOML")
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir()
    assert len(project_rules(inner)) == 4
    write(inner, "[tool.armature.rules]\nskip = []")
    assert project_rules(inner) == ()


def test_no_project(tmp_path: Path) -> None:
    assert project_rules(tmp_path) == ()


@pytest.mark.parametrize(
    ("section", "line", "problem"),
    [
        ("skipp = []", 2, "Did you mean skip"),
        ("graph = []", 2, "It may have: in_graph, inline, skip"),
        ("skip = 3", 2, "not a list"),
        ('skip = "json.dumps"', 2, "not a list"),
        ("skip = [\n 3,\n]", 2, "has the entry 3"),
        ('skip = [\n "json.dumps",\n "json dumps",\n]', 4, "not a dotted name"),
        ('skip = [\n { reason = "r" },\n]', 3, "has no name"),
        ('skip = [\n { name = "json.dumps", why = "x" },\n]', 3, "has no 'why'"),
        ('skip = [\n { name = "json.dumps", reason = "" },\n]', 3, "reason is ''"),
        ('skip = [\n { name = "json.dumps", reason = 3 },\n]', 3, "reason is 3"),
        ('skip = [\n\n { name = "json.dumps", requires = "a b" },\n]', 4, "requires is"),
        ('skip = ["json.dumps"]\ninline = ["json.dumps"]', 3, "line 2, as inline and skip"),
        ('skip = ["json.dumps"', 2, "not TOML"),
    ],
)
def test_bad_entries_name_file_and_line(tmp_path: Path, section: str, line: int, problem: str) -> None:
    path = write(tmp_path, f"[tool.armature.rules]\n{section}")
    with pytest.raises(BadProjectRule) as caught:
        project_rules(tmp_path)
    assert str(caught.value).startswith(f"{path}:{line}: [A221]")
    assert problem in str(caught.value)


@pytest.mark.parametrize("text", ["[tool.armature]\nrules = 3", "[tool]\narmature = 3"])
def test_a_section_that_is_no_table(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(BadProjectRule, match="not a table") as caught:
        project_rules(tmp_path)
    assert str(caught.value).startswith(f"{path}:2")


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    return forked.run(["program.py"], folder, {"TERM": "dumb", "ARMATURE_STRICT": "0"})


FOLLOWS = """
import json
import armature, armature.plugins
from armature.cli.app import make_app
from typer.testing import CliRunner

print(armature.why(json.dumps))
for arguments in (["plugins", "doctor"], ["why", "json.JSONEncoder#encode", "--json"]):
    print(CliRunner().invoke(make_app(armature.plugins.manager()), arguments).stdout)
"""


def test_a_program_and_the_commands_follow_the_project(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("in_graph = []", 'in_graph = ["json.no_such", "no_such_package.fn"]'))
    (tmp_path / "sub").mkdir()
    done = run(tmp_path / "sub", FOLLOWS)
    assert "decision   skip" in done.stdout and f"user, {path}:8" in done.stdout, done.stderr
    assert f"{path}:12: json.no_such does not exist here" in done.stdout
    assert "no_such_package.fn does not exist here" in done.stdout and "json.loads does" not in done.stdout
    answer = json.loads(done.stdout[done.stdout.rindex("\n{\n") :])
    assert answer["decision"] == "skip" and answer["origin"]["line"] == 9
    assert any(f"{path}:9" in change for change in answer["change"])


def test_a_bad_project_is_told_by_the_command(tmp_path: Path) -> None:
    path = write(tmp_path, "[tool.armature.rules]\nskip = [3]")
    done = run(tmp_path, "import sys; sys.argv = ['armature', 'why', 'len']; import armature.cli.app as c; c.main()")
    assert done.returncode == 2 and f"{path}:2: [A221]" in done.stderr and "Traceback" not in done.stderr


def test_a_bad_project_is_told_where_a_function_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "[tool.armature.rules]\nskip = [3]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "manager", plugins.manager.__wrapped__)
    with pytest.raises(BadProjectRule):
        armature.compile(lambda x: x)


def test_the_commands_find_modules_of_the_folder(tmp_path: Path) -> None:
    """A script that is installed has not the folder one stands in on its path, as `python -c` has."""
    write(tmp_path, '[tool.armature.rules]\nskip = ["own_module.there", "own_module.away"]')
    (tmp_path / "own_module.py").write_text("def there(x):\n    return x\n")
    start = "import sys, armature.cli.app as c; sys.argv = ['armature', 'plugins', 'doctor']; c.main()"
    command = [sys.executable, "-P", "-c", start]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "own_module.away does not exist here" in done.stdout, done.stderr
    assert "own_module.there" not in done.stdout
