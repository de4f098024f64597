"""`armature plugins`: what is installed, what each plugin provides, its problems, and how to start one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from armature import config, plugins
from armature.breaks.check import Finding, findings
from armature.cli.scaffold import scaffold
from armature.cli.scripts import modules_of_the_folder
from armature.cli.terminal import console, print_data
from armature.errors import DuplicateRow, UnknownName, UnknownPass
from armature.graph.data import STAGES
from armature.graph.passes import chosen
from armature.plugins.calls import Plugin, Problem
from armature.plugins.plugin_manager import PluginManager
from armature.plugins.registry import Contest
from armature.plugins.tables import Tables
from armature.rules.data import Missing, Rule
from armature.rules.names import resolve
from armature.rules.targets import USER, place

NONE = """none. Without plugins armature knows nothing of torch or of devices, and runs everything eagerly.
Install them: pip install 'torch-armature[cpu]', or [gpu], or [all]"""
ANSWERS = frozenset(
    {
        "armature_decide",
        "armature_extend_break",
        "armature_graph_break",
        "armature_device_backend",
        "armature_launch_recorder",
        "armature_compile_event",
        "armature_cli",
    }
)


@attrs.frozen
class Health:
    """The findings of `doctor`. `ok` if nothing is broken or undecided; overrides are intended."""

    broken: tuple[Problem, ...]
    conflicts: tuple[Problem, ...]
    overrides: tuple[Contest[Any], ...]
    missing: tuple[Missing, ...]
    unmatched: tuple[Missing, ...]  # of the user's own rules
    disabled: tuple[Plugin, ...]
    unknown_names: tuple[str, ...]  # of plugins, in settings
    unknown_passes: str = ""
    break_types: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing has to be fixed."""
        wrong = any(finding.wrong for finding in self.break_types)
        return not (self.broken or self.conflicts or self.unknown_names or self.unknown_passes or wrong)


def lenient_tables(manager: PluginManager) -> Tables:
    """The tables without broken parts, even in strict mode, because these commands report them."""
    with config.patch(strict=False):
        return manager.tables()


def provided_by(tables: Tables, plugin: Plugin) -> str:
    """What a plugin provides, briefly: its rows by table, and the hooks that return no rows."""
    counted = [f"{count} {name.replace('_', ' ')}" for name, count in tables.counts(plugin).items()]
    others = [hook.removeprefix("armature_").replace("_", " ") for hook in plugin.hooks if hook in ANSWERS]
    return ", ".join([*counted, *others]) or "nothing"


def as_data(tables: Tables, plugin: Plugin) -> Mapping[str, object]:
    """A plugin for `--json`."""
    return attrs.asdict(plugin) | {"hooks": list(plugin.hooks), "rows": dict(tables.counts(plugin))}


def show_plugins(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="print it as data")] = False,
) -> None:
    """List the plugins, their versions, and what each provides."""
    if context.invoked_subcommand:
        return
    manager = plugins.manager()
    tables = lenient_tables(manager)
    found = sorted(tables.plugins, key=lambda plugin: plugin.name)
    if as_json:
        print_data([as_data(tables, plugin) for plugin in found])
        return
    out = console()
    if not found:
        out.print(NONE, markup=False, soft_wrap=True)
    else:
        out.print(table_of(tables, found))
    print_notes(out, manager)


def table_of(tables: Tables, found: list[Plugin]) -> Table:
    """The plugins as a table."""
    table = Table("plugin", "distribution", "version", "gives", "hooks", box=None, pad_edge=False, header_style="bold")
    for plugin in found:
        hooks = " ".join(hook.removeprefix("armature_") for hook in plugin.hooks)
        table.add_row(plugin.name, plugin.distribution, plugin.version, provided_by(tables, plugin), hooks)
    return table


def print_notes(out: Console, manager: PluginManager) -> None:
    """Facts that the table does not show: excluded plugins, and whether there are problems."""
    if manager.disabled:
        out.print(f"disabled: {', '.join(plugin.name for plugin in manager.disabled)}", markup=False)
    if count := len(manager.problems):
        things = "1 problem" if count == 1 else f"{count} problems"
        out.print(f"{things}: `armature plugins doctor` tells what and why", style="yellow", markup=False)


def examine(manager: PluginManager) -> Health:
    """Look for everything that is wrong with the plugins, or worth knowing."""
    tables = lenient_tables(manager)
    settings = config.current()
    problems = manager.problems
    broken = (Plugin(p.plugin, p.distribution, p.version) for p in problems)
    known = [*tables.plugins, *manager.disabled, *broken]
    named = [*settings.disabled_plugins, *settings.plugin_order]
    return Health(
        broken=tuple(p for p in problems if not isinstance(p.error, DuplicateRow)),
        conflicts=tuple(p for p in problems if isinstance(p.error, DuplicateRow)),
        overrides=tuple(contest for contest in tables.contests() if not contest.tie),
        missing=tuple(m for m in tables.rule_book.missing() if m.origin.plugin != USER),
        unmatched=tuple(unmatched(manager.user_rules())),
        disabled=manager.disabled,
        unknown_names=tuple(sorted({name for name in named if not any(plugin.called([name]) for plugin in known)})),
        unknown_passes=unknown_passes(manager),
        break_types=tuple(findings((row.value, row.plugin.title) for row in tables.registries.break_types.winners())),
    )


def unknown_passes(manager: PluginManager) -> str:
    """The message about a setting that names no pass; "" if all names are passes."""
    with config.patch(strict=False) as settings:
        try:
            manager.check_passes({*settings.disabled_passes, *settings.pass_order}, settings)
        except UnknownPass as error:
            return str(error)
    return ""


def unmatched(rules: Iterable[Rule]) -> Iterator[Missing]:
    """Rules whose name leads to nothing, even after importing its module."""
    for rule in rules:
        if rule.name and rule.origin is not None:
            try:
                resolve(rule.name)
            except UnknownName as error:
                yield Missing(rule, rule.origin, f"{rule.name} does not exist here. {error.facts['advice']}")


def override_line(contest: Contest[Any]) -> str:
    """A contest as one line."""
    losers = ", ".join(row.place for row in contest.losers)
    return f"{contest.table} of {contest.key}: {contest.winner.place} wins over {losers}"


def sections(health: Health) -> Mapping[str, list[str]]:
    """The findings as captions and lines."""
    return {
        "broken": [str(problem.error) for problem in health.broken],
        "conflicts": [str(problem.error) for problem in health.conflicts],
        "settings that name no plugin": [
            f"{name}: in disabled_plugins or plugin_order" for name in health.unknown_names
        ],
        "settings that name no pass": [health.unknown_passes] if health.unknown_passes else [],
        "graph breaks to be fixed": [str(found) for found in health.break_types if found.wrong],
        "overrides": [override_line(contest) for contest in health.overrides],
        "graph breaks that could say more": [str(found) for found in health.break_types if not found.wrong],
        "rules of yours that match nothing": [f"{place(m.origin)}: {m.why}" for m in health.unmatched],
        "rules that match nothing here": [f"{m.why} ({m.origin.plugin})" for m in health.missing],
        "disabled": [f"{plugin.name} ({plugin.distribution} {plugin.version})" for plugin in health.disabled],
    }


def health_data(health: Health) -> Mapping[str, object]:
    """The findings for `--json`."""

    def problem(p: Problem) -> Mapping[str, str]:
        facts = {"plugin": p.plugin, "distribution": p.distribution, "version": p.version, "hook": p.hook}
        return facts | {"code": p.code, "message": str(p.error)}

    return {
        "ok": health.ok,
        "broken": [problem(p) for p in health.broken],
        "conflicts": [problem(p) for p in health.conflicts],
        "overrides": [override_line(contest) for contest in health.overrides],
        "break_types": [attrs.asdict(found) for found in health.break_types],
        "unmatched_rules": [m.why for m in health.missing],
        "unmatched_user_rules": [
            {"target": str(m.rule.target), "why": m.why, "file": m.origin.file, "line": m.origin.line}
            for m in health.unmatched
        ],
        "disabled": [plugin.name for plugin in health.disabled],
        "unknown_names": list(health.unknown_names),
        "unknown_passes": health.unknown_passes,
    }


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="print it as data")] = False,
    limit: Annotated[int, typer.Option(help="lines of each kind, 0 for all")] = 10,
) -> None:
    """Report what is broken, in conflict or overridden. Status 1 if something has to be fixed."""
    with modules_of_the_folder():
        health = examine(plugins.manager())
    if as_json:
        print_data(health_data(health))
    else:
        print_health(console(), health, limit)
    if not health.ok:
        raise typer.Exit(1)


def print_health(out: Console, health: Health, limit: int) -> None:
    """Print the findings, section by section."""
    for caption, lines in sections(health).items():
        if not lines:
            continue
        out.print(Text(f"{caption} ({len(lines)})", style="bold"))
        shown = lines[:limit] if limit else lines
        for line in shown:
            out.print(f"  {line}", markup=False, soft_wrap=True)
        if len(shown) < len(lines):
            out.print(f"  and {len(lines) - len(shown)} more: --limit 0 shows all", markup=False)
    if health.ok:
        out.print("all plugins are well", style="green")
    else:
        out.print("something has to be fixed", style="red")


def new(
    name: Annotated[str, typer.Argument(help="what the plugin serves, as in `mylib`; it becomes armature-mylib")],
    path: Annotated[Path, typer.Option(help="folder to make it in")] = Path("."),
) -> None:
    """Make a plugin distribution with hooks to fill in and passing tests."""
    made = scaffold(name, path)
    out = console()
    out.print(f"made {made.folder}:", markup=False, soft_wrap=True)
    for file in made.files:
        out.print(f"  {file}", markup=False, soft_wrap=True)
    out.print("next:")
    out.print(f"  pip install -e {made.folder}", markup=False, soft_wrap=True)
    out.print(f"  pytest {made.folder}", markup=False, soft_wrap=True)
    out.print("  armature plugins")


def passes() -> None:
    """List the passes of each stage in execution order, with the plugin of each."""
    tables = lenient_tables(plugins.manager())
    settings = config.current()
    table = Table("stage", "pass", "plugin", "", box=None, pad_edge=False, header_style="bold")
    for stage in STAGES:
        for step in chosen(tables.passes(stage), frozenset(), settings.pass_order):
            note = "disabled" if step.name in settings.disabled_passes else ""
            table.add_row(stage, step.name, tables.owner_of_pass(step.name), note)
    out = console()
    out.print(table)
    if problem := unknown_passes(plugins.manager()):
        out.print(problem, style="yellow", markup=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Plugins: the list, `doctor`, `passes`, and `new` to start one.")
    group.callback(invoke_without_command=True)(show_plugins)
    group.command("doctor")(doctor)
    group.command("new")(new)
    group.command("passes")(passes)
    app.add_typer(group, name="plugins")
