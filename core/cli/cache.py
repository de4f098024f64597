"""`armature cache`: shows the folder of built kernels and its size, and lists, verifies and clears it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.table import Table

from armature import config
from armature.cli.terminal import console, print_data
from armature.run.cache import Cache

UNITS = ("bytes", "KiB", "MiB", "GiB")
AsJson = Annotated[bool, typer.Option("--json", help="print it as data")]


def readable(size: int) -> str:
    """A number of bytes in a readable unit."""
    amount = float(size)
    for unit in UNITS[:-1]:
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {UNITS[-1]}"


def this_cache() -> Cache:
    """The cache that the settings name."""
    return Cache(config.current().cache_dir)


def show_cache(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the folder of built kernels and its size."""
    if context.invoked_subcommand:
        return
    cache = this_cache()
    files, size, problem = len(cache.files()), cache.size(), cache.problem()
    if as_json:
        facts = {"path": str(cache.folder), "files": files, "bytes": size, "limit": cache.limit, "problem": problem}
        print_data(facts)
        return
    out = console()
    out.print(f"path    {cache.folder}", soft_wrap=True, markup=False)
    out.print(f"files   {files}")
    out.print(f"size    {readable(size)} of at most {readable(cache.limit)}")
    if problem:
        out.print(f"not usable: {problem}. Each process rebuilds its kernels.", soft_wrap=True, markup=False)
    out.print(
        "`armature cache list` names them, `verify` checks and `clear` removes them; ARMATURE_CACHE_DIR moves them."
    )


def list_files(as_json: AsJson = False) -> None:
    """List built kernels, the last used ones first."""
    entries = sorted(this_cache().entries(), key=lambda entry: -entry.used)
    if as_json:
        print_data([{"path": str(entry.path), "bytes": entry.size, "used": entry.used} for entry in entries])
        return
    table = Table("key", "kind", "size", "last used", box=None, pad_edge=False, header_style="bold")
    for entry in entries:
        used = datetime.fromtimestamp(entry.used).isoformat(" ", "seconds")
        table.add_row(entry.key, entry.suffix.removeprefix("."), readable(entry.size), used)
    console().print(table)


def verify(
    remove: Annotated[bool, typer.Option("--remove", help="remove invalid kernels; they are built again")] = False,
    as_json: AsJson = False,
) -> None:
    """Check that built kernels are unchanged, and accessible to their owner only. Status 1 if a bad one remains."""
    cache = this_cache()
    entries = cache.entries()
    bad = [(entry, fault) for entry in entries if (fault := entry.fault())]
    if remove:
        for entry, _ in bad:
            entry.remove()
    if as_json:
        faults = [{"path": str(entry.path), "fault": fault} for entry, fault in bad]
        print_data({"files": len(entries), "bad": faults, "removed": remove})
    else:
        out = console()
        for entry, fault in bad:
            out.print(f"{entry.path}: {fault}", soft_wrap=True, markup=False)
        out.print(f"{len(entries)} files, {len(bad)} bad{' and removed' if remove and bad else ''}")
    if bad and not remove:
        raise typer.Exit(1)


def clear() -> None:
    """Remove all built kernels; they are built again when they are needed."""
    cache = this_cache()
    size = cache.size()
    console().print(
        f"removed {cache.clear()} files, {readable(size)}, from {cache.folder}", soft_wrap=True, markup=False
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(help="Built kernels: where they are, how large; `list`, `verify`, `clear`.")
    group.callback(invoke_without_command=True)(show_cache)
    group.command("list")(list_files)
    group.command("verify")(verify)
    group.command("clear")(clear)
    app.add_typer(group, name="cache")
