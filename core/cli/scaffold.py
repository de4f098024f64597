"""Creates a plugin distribution from armature's templates."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import attrs
import jinja2

from armature.errors import BadPluginName, PathTaken
from armature.hookspecs import API_VERSION

PACKAGE = "armature.cli"
FOLDER = "templates/plugin"
SUFFIX = ".j2"
NAME = re.compile(r"[a-z][a-z0-9_-]*", re.IGNORECASE)


@attrs.frozen
class Scaffold:
    """A new distribution: its folder, and its files relative to the folder."""

    folder: Path
    files: tuple[Path, ...]


def templates() -> list[tuple[str, str]]:
    """The templates: each file's path, with the plugin's package called `package`, and its text."""

    def walk(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
        found = []
        for entry in sorted(folder.iterdir(), key=lambda e: e.name):
            if entry.is_dir():
                found += walk(entry, f"{prefix}{entry.name}/")
            elif entry.name.endswith(SUFFIX):
                found.append((prefix + entry.name.removesuffix(SUFFIX), entry.read_text(encoding="utf-8")))
        return found

    return walk(resources.files(PACKAGE).joinpath(FOLDER), "")


def scaffold(name: str, parent: Path) -> Scaffold:
    """Make `armature-<name>` in a folder. Raises BadPluginName and PathTaken, without writing anything."""
    bare = name.removeprefix("armature-").removeprefix("armature_")
    if not NAME.fullmatch(bare):
        raise BadPluginName(name=name, suggestion=re.sub(r"\W+", "-", bare).strip("-0123456789") or "mylib")
    key = bare.lower().replace("-", "_")
    facts = {
        "key": key,
        "distribution": f"armature-{key.replace('_', '-')}",
        "package": f"armature_{key}",
        "api_version": API_VERSION,
        "requirement": ">=0.1,<0.2",
    }
    folder = parent / str(facts["distribution"])
    if folder.exists():
        raise PathTaken(path=folder)
    engine = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    made = []
    for target, text in templates():
        head, _, tail = target.partition("/")
        file = Path(str(facts["package"]), tail) if head == "package" else Path(target)
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(engine.from_string(text).render(facts), encoding="utf-8")
        made.append(file)
    return Scaffold(folder, tuple(made))
