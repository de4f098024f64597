"""Imports inside functions, of modules that are already loaded."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from types import ModuleType

from armature.plugin_api import Call, ItemSource, ObjectSource, Tracing, Value, handles, is_trusted, object_source

LOADED = ObjectSource(sys.modules, "sys.modules")


@handles(builtins.__import__)
def import_module(
    call: Call,
    name: Value,
    globals: Value | None = None,
    locals: Value | None = None,
    fromlist: Value | None = None,
    level: Value | None = None,
) -> Value:
    """The module of this name; its outermost package if there is no `fromlist`."""
    tracer, wanted = call.tracing, str(name.as_constant())
    parts = () if fromlist is None or fromlist.python_type() is type(None) else tuple(fromlist.as_constant())
    steps = 0 if level is None else int(level.as_constant())
    if steps:
        wanted = resolved(tracer, wanted, steps, globals)
    top = wanted.partition(".")[0]
    if top not in sys.modules and importlib.util.find_spec(top) is None:
        tracer.guards.absent(LOADED, top)
        tracer.raise_error(ModuleNotFoundError, f"No module named {top!r}")
    value = loaded(tracer, wanted)
    for part in parts:
        has_part(tracer, value, wanted, str(part))
    return loaded(tracer, top) if not parts and not steps else value


def resolved(tracer: Tracing, name: str, level: int, namespace: Value | None) -> str:
    """The absolute name of a module imported relative to the frame's package."""
    package = tracer.stack.frames[-1].namespace.get("__package__")
    given = namespace is not None and namespace.python_type() is not type(None)
    if given or not isinstance(package, str) or not package:
        tracer.graph_break("import-without-package")
    return importlib.util.resolve_name("." * level + name, package)


def loaded(tracer: Tracing, name: str) -> Value:
    """The module in `sys.modules`. Modules of torch and the standard library are expected to stay there."""
    module = sys.modules.get(name)
    if not isinstance(module, ModuleType):
        tracer.graph_break("imports-module", module=name)
    fixed = is_trusted(module) and module.__name__ == name
    return tracer.objects.wrap(module, object_source(module) if fixed else ItemSource(LOADED, name))


def has_part(tracer: Tracing, module: Value, name: str, part: str) -> None:
    """Break the graph unless `from name import part` loads nothing: the part is an attribute or a loaded module."""
    if part != "*" and tracer.python.attribute_or_none(module, part) is not None:
        return
    if part == "*" or f"{name}.{part}" in sys.modules:
        return
    if module.as_object().__dict__.get("__name__") != name:
        tracer.graph_break("import-from-unclear-module", name=part, module=module.describe())
    tracer.graph_break("imports-module", module=f"{name}.{part}")
