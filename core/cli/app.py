"""The `armature` command: the core's own subcommands, and those of plugins."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer
from typer.main import get_command, get_command_name

from armature import plugins
from armature.cli import breaks, cache, code, demo, doctor, explain, repro, rules, run, why
from armature.cli import plugins as plugin_commands
from armature.cli.terminal import console, fail
from armature.errors import ArmatureError, DuplicateRow, PluginError
from armature.plugins.calls import Implementation, call, failed
from armature.plugins.plugin_manager import CORE, PluginManager
from armature.torch_abi import versions

# In the order of `armature --help`.
COMMANDS = (demo, run, explain, why, rules, code, breaks, repro, plugin_commands, cache, doctor)
HOOK = "armature_cli"


def show_version(wanted: bool) -> None:
    """Print the versions that a bug report needs, and exit."""
    if wanted:
        python = ".".join(map(str, sys.version_info[:3]))
        print(f"armature {metadata.version(CORE)}, torch {versions.of_process().torch}, Python {python}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print versions and exit.")
    ] = False,
) -> None:
    """A pluggable compiler for PyTorch."""


def names_in(app: typer.Typer) -> set[str]:
    """The subcommands of an app."""
    commands = {c.name or get_command_name(c.callback.__name__) for c in app.registered_commands if c.callback}
    return commands | {g.name for g in app.registered_groups if isinstance(g.name, str)}


def add_plugin_commands(app: typer.Typer, manager: PluginManager) -> None:
    """Ask plugins for subcommands. A plugin that raises, or uses an existing name, is reported and adds nothing."""
    owners = dict.fromkeys(names_in(app), "armature itself")
    for impl in manager.implementations(HOOK):
        try:
            own = commands_of(impl)
            for name in sorted(names_in(own) & owners.keys()):
                facts = impl.plugin.facts | {"hook": HOOK, "table": "command", "key": name}
                raise DuplicateRow(first=owners[name], second=impl.plugin.title, **facts)
        except PluginError as error:
            manager.record(error)
            continue
        owners |= dict.fromkeys(names_in(own), impl.plugin.title)
        app.registered_commands += own.registered_commands
        app.registered_groups += own.registered_groups


def commands_of(impl: Implementation) -> typer.Typer:
    """The subcommands of one plugin, in an app of their own. Raises HookFailed, also if they can't be parsed."""
    own = typer.Typer()
    call(impl, app=own)
    if names_in(own):
        try:
            get_command(own)  # reads the signatures: an annotation that typer does not support raises here
        except Exception as error:
            raise failed(impl, error) from error
    return own


def make_app(manager: PluginManager) -> typer.Typer:
    """The command with all its subcommands."""
    app = typer.Typer(name="armature", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(root)
    for module in COMMANDS:
        module.register(app)
    add_plugin_commands(app, manager)
    return app


def warn_of_problems(manager: PluginManager, arguments: Sequence[str]) -> None:
    """Print one line to standard error if a plugin's commands are missing; `armature plugins` reports the rest
    itself."""
    broken = sorted({problem.plugin for problem in manager.problems if problem.hook in ("", HOOK)})
    if broken and arguments[:1] != ["plugins"]:
        text = f"armature: trouble with {', '.join(broken)}; `armature plugins doctor` tells what and why"
        console(stderr=True).print(text, style="yellow", markup=False, soft_wrap=True)


def main() -> None:
    """The entry point of the `armature` script. Errors of armature are printed, not raised; the exit status is then
    2."""
    try:
        manager = plugins.manager()
        app = make_app(manager)
        warn_of_problems(manager, sys.argv[1:])
        app(prog_name="armature")
    except ArmatureError as error:
        fail(error)
