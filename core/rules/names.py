"""From a dotted name to the object, importing modules as needed, and from a wrong name to similar ones."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch

from armature.errors import UnknownName
from armature.introspection import MISSING, is_class, is_module, member
from armature.rules.book import load_name
from armature.rules.targets import is_dotted

OPERATORS = "torch.ops."
FILE = re.compile(r"\.py(:|$)")
# Where an undotted name is looked up: `relu` for torch.nn.functional.relu.
OFTEN_MEANT = (("torch.nn.functional", "."), ("torch", "."), ("torch.Tensor", "#"), ("torch.nn", "."))
ADVICE = "Write the full name, as in torch.nn.functional.gelu or torch.Tensor#add, and check that it is installed."


def resolve(name: str) -> Any:
    """The object of a dotted name, importing modules as needed. Raises UnknownName, with the most similar name."""
    if FILE.search(name):
        raise UnknownName(name=name, advice="Of a file, say the line too: armature why model.py:41.")
    if not is_dotted(name):
        raise UnknownName(name=name, advice=ADVICE)
    try:
        return _operator(name) if name.startswith(OPERATORS) else _loaded(name)
    except Exception as error:
        if failure := import_failure(name):
            raise UnknownName(name=name, advice=failure) from error
        near = nearest(name)
        raise UnknownName(name=name, advice=f"Did you mean {near}?" if near else _known_part(name)) from error


def _known_part(name: str) -> str:
    """The part of the name that exists, if there is no similar name."""
    parts = name.replace("#", ".").split(".")
    owner, known = _owner(parts)
    if owner is not MISSING:
        return f"{'.'.join(parts[:known])} is there, but nothing in it is called {parts[known]}. {ADVICE}"
    return f"There is no module {parts[0]} on the path. {ADVICE}" if len(parts) > 1 else ADVICE


def import_failure(name: str) -> str:
    """The error of a module on the way to the name when it is imported, "" if there is none."""
    parts = name.replace("#", ".").split(".")
    for count in range(1, len(parts) + 1):
        module = ".".join(parts[:count])
        try:
            importlib.import_module(module)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == module:
                return ""  # the rest of the name are members, or nothing
            return f"Importing {module} raised {type(error).__name__}: {error}"
    return ""


def _operator(name: str) -> Any:
    found: Any = torch.ops
    for part in name.removeprefix(OPERATORS).split("."):  # packets are made on first access
        found = getattr(found, part)
    return found


def _loaded(name: str) -> Any:
    try:
        return load_name(name)
    except LookupError:
        owner, _, last = name.rpartition(".")
        module = sys.modules.get(owner)
        if module is None or not hasattr(module, "__getattr__"):
            raise
        return getattr(module, last)  # for a module that makes its members on first access


def nearest(name: str) -> str:
    """The name that is likely meant, "" if none is similar."""
    parts = name.replace("#", ".").split(".")
    owner, known = _owner(parts)
    if owner is MISSING:
        return _alone(parts) or _near(parts[0], _top_level(), 0.75)
    found = _near(parts[known], _members(owner), 0.6)
    if not found:
        return ""
    mark = "#" if is_class(owner) else "."
    rest = parts[known + 1 :]
    return ".".join(parts[:known]) + mark + ".".join([found, *rest])


def _owner(parts: list[str]) -> tuple[Any, int]:
    """The object that the first parts of a name lead to, and the number of these parts."""
    found: Any = MISSING
    for count in range(1, len(parts)):
        try:
            found, known = load_name(".".join(parts[:count])), count
        except Exception:
            break
    return (found, known) if found is not MISSING else (MISSING, 0)


def _alone(parts: list[str]) -> str:
    for owner, mark in OFTEN_MEANT:
        if len(parts) == 1 and member(load_name(owner), parts[0]) is not MISSING:
            return f"{owner}{mark}{parts[0]}"
    return ""


def _near(name: str, known: Iterator[str], cutoff: float) -> str:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return found[0] if found else ""


def _members(owner: Any) -> Iterator[str]:
    held = [vars(owner)] if is_module(owner) else [vars(base) for base in owner.__mro__] if is_class(owner) else []
    for names in held:
        yield from (name for name in names if not name.startswith("__"))
    if is_module(owner) and hasattr(owner, "__path__"):
        yield from (module.name for module in pkgutil.iter_modules(owner.__path__))


def _top_level() -> Iterator[str]:
    yield from sys.stdlib_module_names
    yield from (module.name for module in pkgutil.iter_modules())


def importable(name: str) -> bool:
    """Whether a module of that name exists; packages above it are imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False
