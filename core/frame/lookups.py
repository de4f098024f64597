"""How attributes of an object are looked up, if no code of the program takes part."""

from __future__ import annotations

from typing import Any

from torch import nn

from armature.introspection import MISSING, class_member

MODULE_TABLES = ("_parameters", "_buffers", "_modules")


def has_instance_dict(obj: object) -> bool:
    """Whether the object has an ordinary `__dict__` of its own. A class's is of another kind."""
    return type(obj).__dictoffset__ != 0 and not issubclass(type(obj), type)


def dict_path(obj: object, name: str) -> tuple[str, ...] | None:
    """Keys from the object's instance dict to where `obj.name` is found; None when getattr must be called."""
    kind = type(obj)
    if not has_instance_dict(obj) or class_member(kind, "__getattribute__") is not _plain_lookup(obj):
        return None
    held: dict[str, Any] = object.__getattribute__(obj, "__dict__")
    in_class = class_member(kind, name)
    if in_class is not MISSING and class_member(type(in_class), "__set__") is not MISSING:
        return None
    if name in held:
        return (name,)
    module = issubclass(kind, nn.Module) and class_member(kind, "__getattr__") is nn.Module.__getattr__
    if module and in_class is MISSING:
        return next(((table, name) for table in MODULE_TABLES if name in held.get(table, ())), None)
    return None


def _plain_lookup(obj: object) -> object:
    """The `__getattribute__` of the object's builtin base, if that looks attributes up as `object` does."""
    base = type(obj)
    while base.__flags__ & (1 << 9):  # defined by a class statement
        base = base.__base__ or object
    return class_member(base, "__getattribute__")
