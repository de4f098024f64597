"""The command line: what it prints, its data, its exit status, and the subcommands of plugins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest
import typer
from typer.testing import CliRunner, Result

from armature import config, plugins
from armature.cli import doctor as machine
from armature.cli.app import COMMANDS, make_app, warn_of_problems
from armature.config import Config
from armature.errors import HookFailed
from armature.plugin_api import BreakType, Decision, Hint, Rule, hookimpl, with_examples
from armature.plugins import PluginManager
from armature.run.cache import Cache

CORE = "builtin_rules"


class Mine:
    """A plugin with a rule, a handler hook and a subcommand."""

    @hookimpl
    def armature_rules(self) -> list[Rule]:
        return [Rule("json.dumps", Decision.SKIP, "text, not tensors", priority=10)]

    @hookimpl
    def armature_cli(self, app: typer.Typer) -> None:
        app.command("mine")(lambda: print("mine is here"))
        group = typer.Typer()
        group.command("one")(lambda: print("one of a group"))
        group.command("two")(lambda: print("two of a group"))
        app.add_typer(group, name="group")


@pytest.fixture
def own(manager: PluginManager, monkeypatch: pytest.MonkeyPatch) -> PluginManager:
    """The commands see only what a test registers."""
    monkeypatch.setattr(plugins, "manager", lambda: manager)
    return manager


@pytest.fixture
def mine(own: PluginManager) -> Iterator[PluginManager]:
    with own.registered(Mine(), "mine"):
        yield own


def run(manager: PluginManager, *arguments: str) -> Result:
    return CliRunner().invoke(make_app(manager), list(arguments))


def data(manager: PluginManager, *arguments: str) -> Any:
    return json.loads(run(manager, *arguments, "--json").stdout)


def test_plugins_says_none(own: PluginManager) -> None:
    found = run(own, "plugins")
    assert found.exit_code == 0
    assert found.stdout.startswith("none.")
    assert "pip install 'torch-armature[cpu]'" in found.stdout


def test_plugins_lists_what_each_gives(mine: PluginManager) -> None:
    found = run(mine, "plugins")
    assert found.exit_code == 0
    assert "1 rules" in found.stdout
    assert "rules cli" in found.stdout or "cli rules" in found.stdout


def test_plugins_as_data(mine: PluginManager) -> None:
    (row,) = data(mine, "plugins")
    assert row["name"] == "mine"
    assert row["rows"] == {"rules": 1}
    assert set(row["hooks"]) == {"armature_rules", "armature_cli"}


def test_the_installed_plugins_are_listed() -> None:
    found = {row["name"]: row for row in data(plugins.manager(), "plugins")}
    assert found[CORE]["rows"]["rules"] > 100
    assert found[CORE]["distribution"] == "armature-builtin-rules"


def test_doctor_of_plugins_is_content_with_overrides(mine: PluginManager) -> None:
    class Other:
        @hookimpl
        def armature_rules(self) -> list[Rule]:
            return [Rule("json.dumps", Decision.INLINE, "why not")]

    with mine.registered(Other(), "other"):
        found = run(mine, "plugins", "doctor")
        assert found.exit_code == 0, found.stdout
        assert "overrides (1)" in found.stdout
        assert "all plugins are well" in found.stdout
        (override,) = data(mine, "plugins", "doctor")["overrides"]
        assert override.startswith("rule of json.dumps: mine (")
        assert "wins over other (" in override


def test_doctor_of_plugins_fails_for_broken_ones(mine: PluginManager) -> None:
    class Broken:
        @hookimpl
        def armature_handlers(self) -> None:
            raise RuntimeError("no handlers today")

    with mine.registered(Broken(), "broken"):
        found = run(mine, "plugins", "doctor")
        assert found.exit_code == 1
        assert "no handlers today" in found.stdout
        assert "What to do" in found.stdout
        report = data(mine, "plugins", "doctor")
    assert not report["ok"]
    (problem,) = report["broken"]
    assert problem["code"] == HookFailed.code
    assert (problem["plugin"], problem["hook"]) == ("broken", "armature_handlers")


def test_doctor_of_plugins_fails_for_ties(mine: PluginManager) -> None:
    class Other:
        @hookimpl
        def armature_rules(self) -> list[Rule]:
            return [Rule("json.dumps", Decision.INLINE, "why not", priority=10)]

    with mine.registered(Other(), "other"):
        found = run(mine, "plugins", "doctor")
        assert found.exit_code == 1
        assert "conflicts (1)" in found.stdout
        assert "json.dumps" in found.stdout
        with config.patch(plugin_order=("other",)):
            assert run(mine, "plugins", "doctor").exit_code == 0


def test_doctor_of_plugins_names_settings_that_name_nothing(mine: PluginManager) -> None:
    with config.patch(disabled_plugins={"mien"}):
        found = run(mine, "plugins", "doctor")
    assert found.exit_code == 1
    assert "mien" in found.stdout


def test_settings_that_name_no_pass_are_told() -> None:
    with config.patch(pass_order=["channel-last"]):
        told = [run(plugins.manager(), "plugins", command) for command in ("doctor", "passes")]
    assert [one.exit_code for one in told] == [1, 0]
    assert all("Did you mean 'channels-last'?" in one.stdout for one in told)


def test_doctor_of_plugins_looks_at_break_types(mine: PluginManager) -> None:
    class Careless:
        @hookimpl
        def armature_break_types(self) -> list[BreakType]:
            whole = BreakType("a-whole-one", "t", "`{x}` it is", ("a", "b"), code="XY0001", cause="Because.")
            lacking = BreakType("a-bare-one", "t", "it is", ("a",))
            clash = BreakType("a-clash", "t", "it is {", ("a", "b"), code="XY0002", cause="So.", also=("XY0001",))
            away = with_examples([attrs.evolve(whole, id="no-example", code="XY0003")], "no.such.module")
            return [whole, lacking, clash, *away]

    with mine.registered(Careless(), "careless"):
        found = run(mine, "plugins", "doctor")
        report = data(mine, "plugins", "doctor")["break_types"]
    assert found.exit_code == 1 and "graph breaks to be fixed (3)" in found.stdout
    wrong = [finding["text"] for finding in report if finding["wrong"]]
    assert [text for text in wrong if "XY0001 is a code of a-whole-one too" in text]
    assert [text for text in wrong if "is no template" in text]
    (away,) = [text for text in wrong if "no-example" in text]
    assert "no.such.module can't be imported: ModuleNotFoundError" in away and "What to do" in away
    lacks = {finding["text"] for finding in report if not finding["wrong"]}
    assert {"a-bare-one has one hint: say what else can be done", "3 without examples"} <= lacks
    assert [text for text in lacks if text.startswith("a-bare-one has no cause")]


def test_doctor_of_plugins_says_which_kinds_of_hints_there_are(mine: PluginManager) -> None:
    class Careless:
        @hookimpl
        def armature_break_types(self) -> list[BreakType]:
            return [BreakType("mine", "t", "it is", (Hint("do it", "nice"),))]  # type: ignore[arg-type]

    with mine.registered(Careless(), "careless"):
        found = run(mine, "plugins", "doctor")
    assert found.exit_code == 1 and "no kind of hint called 'nice'; the kinds are 'fundamental'" in found.stdout


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"id": 3}, "break type 3: id is to be a text that is not empty, not 3 (int)"),
        ({"title": " "}, "break type 'mine': title is to be a text that is not empty, not ' ' (str)"),
        ({"explanation": None}, "break type 'mine': explanation is to be a text that is not empty, not None"),
        (
            {"hints": "Write it otherwise."},
            "break type 'mine': hints is to be a tuple of hints, at least one, not 'Wri",
        ),
        ({"hints": ()}, "break type 'mine': hints is to be a tuple of hints, at least one, not () (tuple)"),
        ({"hints": ("a", 3)}, "break type 'mine': one of hints is to be a Hint, or a text that is not empty, not 3"),
        ({"hints": ("a", "")}, "break type 'mine': one of hints is to be a Hint, or a text that is not empty, not ''"),
        ({"hints": 3}, "break type 'mine': hints is to be a tuple of hints, at least one, not 3 (int)"),
        ({"also": "GB0001"}, "break type 'mine': also is to be a tuple of texts, not 'GB0001' (str)"),
        ({"also": (1,)}, "break type 'mine': one of also is to be a text, not 1 (int)"),
        ({"code": 7}, "break type 'mine': code is to be a text, not 7 (int)"),
        ({"example": print}, "break type 'mine': example is to be an Example, not <built-in function print>"),
    ],
    ids=str,
)
def test_doctor_of_plugins_names_the_row_and_field_of_a_wrong_break_type(
    mine: PluginManager, fields: dict[str, Any], told: str
) -> None:
    class Careless:
        @hookimpl
        def armature_break_types(self) -> list[BreakType]:
            sound: dict[str, Any] = {"id": "mine", "title": "t", "explanation": "it is", "hints": ("a", "b")}
            return [BreakType(**sound | fields)]

    with mine.registered(Careless(), "careless"):
        found = run(mine, "plugins", "doctor")
    assert found.exit_code == 1 and told in found.stdout
    assert "plugin careless" in found.stdout and "armature_break_types raised TypeError" in found.stdout
    assert f"at {__file__}:" in found.stdout, "the line of the plugin, not of the check"


def test_two_types_of_one_id_are_a_conflict(mine: PluginManager) -> None:
    class One:
        @hookimpl
        def armature_break_types(self) -> list[BreakType]:
            return [BreakType("mine", "t", "it is", ("a", "b"))]

    with mine.registered(One(), "one"), mine.registered(One(), "other"):
        found = run(mine, "plugins", "doctor")
    assert found.exit_code == 1 and "conflicts (1)" in found.stdout and "break type" in found.stdout


def test_the_builtin_plugins_have_no_break_type_to_mend() -> None:
    found = data(plugins.manager(), "plugins", "doctor")["break_types"]
    assert [finding for finding in found if "without examples" not in finding["text"]] == []


def test_doctor_of_plugins_lists_unmatched_rules(own: PluginManager) -> None:
    class Other:
        @hookimpl
        def armature_rules(self) -> list[Rule]:
            return [Rule("json.no_such_function", Decision.SKIP, "text")]

    with own.registered(Other(), "other"):
        assert "json.no_such_function" in run(own, "plugins", "doctor").stdout


def test_why(mine: PluginManager) -> None:
    found = run(mine, "why", "json.dumps")
    assert found.exit_code == 0
    assert "skip" in found.stdout
    assert "text, not tensors" in found.stdout
    assert f"{__file__}:" in found.stdout
    answer = data(mine, "why", "json.dumps")
    assert answer["decision"] == "skip"
    assert answer["origin"]["plugin"] == "mine"


def test_why_of_nothing(mine: PluginManager) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from armature.cli.app import main; main()", "why", "json.no_such_thing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "json.no_such_thing" in done.stderr
    assert "Traceback" not in done.stderr


def test_cache(own: PluginManager, tmp_path: Path) -> None:
    with config.patch(cache_dir=tmp_path):
        Cache(tmp_path).get_or_build(("key",), ".so", lambda path: path.write_bytes(b"x" * 3000) and None)
        (tmp_path / "ab").mkdir()
        (tmp_path / "ab" / "mine.txt").write_text("not a kernel")
        assert "2.9 KiB" in run(own, "cache").stdout
        facts = {"path": str(tmp_path), "files": 1, "bytes": 3000, "limit": 0, "problem": None}
        assert data(own, "cache") | {"limit": 0} == facts
        assert "removed 1 files" in run(own, "cache", "clear").stdout
        assert data(own, "cache")["files"] == 0
    assert (tmp_path / "ab" / "mine.txt").exists()


def test_cache_lists_and_verifies(own: PluginManager, tmp_path: Path) -> None:
    with config.patch(cache_dir=tmp_path):
        cache = Cache(tmp_path)
        good, bad = (cache.get_or_build((key,), ".so", lambda p: p.write_bytes(b"x" * 2048) and None) for key in "ab")
        assert run(own, "cache", "verify").exit_code == 0
        bad.write_bytes(b"y" * 2048)
        assert {row["path"] for row in data(own, "cache", "list")} == {str(good), str(bad)}
        assert "2.0 KiB" in run(own, "cache", "list").stdout
        found = run(own, "cache", "verify")
        assert found.exit_code == 1 and "2 files, 1 bad" in found.stdout and str(bad) in found.stdout
        assert run(own, "cache", "verify", "--remove").exit_code == 0
        assert not bad.exists() and good.exists()
        assert data(own, "cache", "verify") == {"files": 1, "bad": [], "removed": False}


def test_cache_that_cannot_be_used(own: PluginManager, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with config.patch(cache_dir=tmp_path / "file" / "cache"):
        assert "not usable" in run(own, "cache").stdout
        assert data(own, "cache")["problem"] == f"{tmp_path / 'file'} is not a folder"
        checks = {check["name"]: check for check in json.loads(run(own, "doctor", "--json").stdout)["checks"]}
        assert checks["cache"]["state"] == "missing" and "ARMATURE_CACHE_DIR" in checks["cache"]["fix"]


def test_doctor_of_the_machine() -> None:
    report = data(plugins.manager(), "doctor")
    checks = {check["name"]: check for check in report["checks"]}
    assert {"Python", "torch", "C++ compiler", "GPU", "Triton", "cache"} <= checks.keys() | {"GPU"}
    assert checks["Python"]["state"] == "ok"
    assert all(check["fix"] for check in report["checks"] if check["state"] == "missing")
    assert {row["name"] for row in report["settings"]} == {field.name for field in attrs.fields(Config)}


def test_doctor_names_the_command_that_installs_a_compiler(own: PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    found = run(own, "doctor")
    assert found.exit_code == 1
    assert "C++ compiler: sudo apt-get install -y g++" in found.stdout


def test_doctor_names_the_plugins_to_install(own: PluginManager) -> None:
    found = run(own, "doctor")
    assert found.exit_code == 1
    assert "pip install armature-torch-handlers" in found.stdout


def test_doctor_goes_on_when_a_check_fails(own: PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("the driver does not answer")

    monkeypatch.setattr(machine, "check_gpu", broken)
    found = run(own, "doctor")
    assert "the driver does not answer" in found.stdout
    assert "cache" in found.stdout


def test_plugins_add_subcommands(mine: PluginManager) -> None:
    assert run(mine, "mine").stdout == "mine is here\n"
    assert run(mine, "group", "two").stdout == "two of a group\n"
    assert "mine" in run(mine, "--help").stdout


@pytest.mark.usefixtures("lenient")
def test_a_plugin_whose_commands_fail_does_not_stop_others(
    mine: PluginManager, capsys: pytest.CaptureFixture[str]
) -> None:
    class Raises:
        @hookimpl
        def armature_cli(self, app: typer.Typer) -> None:
            app.command("half")(lambda: None)
            raise RuntimeError("no commands today")

    class Untyped:
        @hookimpl
        def armature_cli(self, app: typer.Typer) -> None:
            def command(thing: Annotated[int, typer.Option(), typer.Argument()] = 0) -> None: ...

            # The annotations must be objects here: as text they could not be resolved in a local scope.
            command.__annotations__ = {"thing": Annotated[int, typer.Option(), typer.Argument()]}
            app.command("untyped")(command)

    class Takes:
        @hookimpl
        def armature_cli(self, app: typer.Typer) -> None:
            app.command("why")(lambda: None)

    for plugin in (Raises(), Untyped(), Takes()):
        mine.register(plugin, type(plugin).__name__)
    assert run(mine, "mine").stdout == "mine is here\n"
    assert run(mine, "half").exit_code == 2
    assert {problem.plugin for problem in mine.problems} == {"Raises", "Untyped", "Takes"}
    warn_of_problems(mine, ["mine"])
    assert "armature plugins doctor" in capsys.readouterr().err
    assert run(mine, "why", "json.dumps").exit_code == 0


def test_version() -> None:
    found = run(PluginManager(find=lambda: ()), "--version")
    assert found.exit_code == 0
    assert found.stdout.startswith("armature ")
    assert "torch 2." in found.stdout


@pytest.mark.parametrize("module", COMMANDS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_each_command_has_help(module: Any, own: PluginManager) -> None:
    found = run(own, module.__name__.rpartition(".")[2], "--help")
    assert found.exit_code == 0
    assert "Usage" in found.stdout


@pytest.mark.parametrize("terminal", ["dumb", "xterm-256color"])
def test_output_in_a_log_is_plain(terminal: str) -> None:
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "TERM": terminal,
        "CI": "1",
        "PYTHONIOENCODING": "utf-8",
    }
    done = subprocess.run(
        [sys.executable, "-c", "from armature.cli.app import main; main()", "plugins"],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert b"builtin_rules" in done.stdout


@pytest.mark.parametrize("command", ["explain", "run", "code", "repro", "breaks of"])
def test_commands_that_take_a_program_know_their_own_options(own: PluginManager, command: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; print(sys.argv[1:])")
    found = run(own, *command.split(), "--halp", str(program))
    assert found.exit_code == 2 and "no option --halp; did you mean --help?" in found.output
    found = run(own, *command.split(), str(program), "--halp", "--x=1")
    assert "['--halp', '--x=1']" in found.stdout
