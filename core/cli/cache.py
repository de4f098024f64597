"""`armature cache`: where built kernels are kept, how much they take, and how to be rid of them."""

from __future__ import annotations

from typing import Annotated

import typer

from armature import config
from armature.cli.terminal import console, print_data
from armature.run.cache import Cache

UNITS = ("bytes", "KiB", "MiB", "GiB")


def readable(size: int) -> str:
    """A number of bytes, as people write it."""
    amount = float(size)
    for unit in UNITS[:-1]:
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {UNITS[-1]}"


def this_cache() -> Cache:
    """The cache that the settings name."""
    return Cache(config.current().cache_dir)


def show_cache(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="print it as data")] = False,
) -> None:
    """Show where built kernels are kept and how much they take."""
    if context.invoked_subcommand:
        return
    cache = this_cache()
    files, size = len(cache.files()), cache.size()
    if as_json:
        print_data({"path": str(cache.folder), "files": files, "bytes": size, "limit": cache.limit})
        return
    out = console()
    out.print(f"path    {cache.folder}", soft_wrap=True, markup=False)
    out.print(f"files   {files}")
    out.print(f"size    {readable(size)} of at most {readable(cache.limit)}")
    out.print("`armature cache clear` removes them, ARMATURE_CACHE_DIR moves them.")


def clear() -> None:
    """Remove all built kernels; they are built again when they are needed."""
    cache = this_cache()
    size = cache.size()
    console().print(
        f"removed {cache.clear()} files, {readable(size)}, from {cache.folder}", soft_wrap=True, markup=False
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(help="Built kernels: where they are, how large, and `clear`.")
    group.callback(invoke_without_command=True)(show_cache)
    group.command("clear")(clear)
    app.add_typer(group, name="cache")
