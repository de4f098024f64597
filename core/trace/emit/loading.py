"""How the code pushes the object at a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from armature import introspection
from armature.frame.guards.paths import calling
from armature.frame.sources import (
    ArrayMemorySource,
    AttrSource,
    BuiltinSource,
    CallSource,
    CellSource,
    DictOfSource,
    EarlySource,
    GlobalSource,
    ItemSource,
    KeptSource,
    LocalSource,
    MemberSource,
    ModeSource,
    ObjectSource,
    ReferentSource,
    TypeOfSource,
    WeakKey,
)
from armature.torch_abi import overrides
from armature.torch_abi.numpy import as_tensor

if TYPE_CHECKING:
    from armature.trace.values.base import Rebuilding

# Of nn.Module, plain attributes of the instance: reading them as attributes is quicker than through `__dict__`.
MODULE_DICTS = frozenset({"_modules", "_parameters", "_buffers"})


def local(out: Rebuilding, source: LocalSource) -> None:
    """A variable of the frame."""
    variable = out.variable(source.name)
    out.emit("LOAD_FAST" if isinstance(variable, str) else "LOAD_DEREF", variable)


def named_global(out: Rebuilding, source: GlobalSource | BuiltinSource) -> None:
    """A global of the frame, or a builtin."""
    out.emit("LOAD_GLOBAL", (False, source.name))


def attribute(out: Rebuilding, source: AttrSource) -> None:
    """An attribute."""
    out.load_source(source.base)
    out.attribute(source.name)


def dict_of(out: Rebuilding, source: DictOfSource) -> None:
    """`__dict__`."""
    if source.base in out.tracer.asking:
        result(out, introspection.dict_of, source.base)
        return
    out.load_source(source.base)
    out.attribute("__dict__")


def type_of(out: Rebuilding, source: TypeOfSource) -> None:
    """The class of an object."""
    result(out, type, source.base)


def item(out: Rebuilding, source: ItemSource) -> None:
    """An item."""
    if isinstance(source.base, DictOfSource) and source.key in MODULE_DICTS:
        out.load_source(source.base.base)
        out.attribute(str(source.key))
        return
    out.load_source(source.base)
    key_of(out, source.key)
    out.emit("BINARY_SUBSCR")


def member(out: Rebuilding, source: MemberSource) -> None:
    """An item, read as the builtin container has it."""
    out.null_function(source.kind.__getitem__)
    out.load_source(source.base)
    key_of(out, source.key)
    out.call(2)


def key_of(out: Rebuilding, key: object) -> None:
    """A key of a dict."""
    if isinstance(key, WeakKey):
        out.null_function(key)
        out.call(0)
    else:
        out.constant(key)


def referent(out: Rebuilding, source: ReferentSource) -> None:
    """What a weak reference refers to."""
    out.function(lambda: out.load_source(source.base))
    out.call(0)


def cell(out: Rebuilding, source: CellSource) -> None:
    """What a cell holds."""
    out.load_source(source.base)
    out.attribute("cell_contents")


def result(out: Rebuilding, fn: Callable[..., Any], base: Any) -> None:
    """What a function gives for the object at a source."""
    out.null_function(fn)
    out.load_source(base)
    out.call(1)


def kept(out: Rebuilding, source: KeptSource) -> None:
    """What a function of the program has kept."""
    out.null_function(calling(source))
    for part in (source.base, *source.args):
        out.load_source(part)
    out.call(len(source.args) + 1)


def mode(out: Rebuilding, source: ModeSource) -> None:
    """A function mode of torch's stack."""
    out.null_function(overrides.mode_at)
    out.constant(source.position)
    out.call(1)


LOADERS: Mapping[type, Callable[[Rebuilding, Any], None]] = {
    LocalSource: local,
    GlobalSource: named_global,
    BuiltinSource: named_global,
    ObjectSource: lambda out, source: out.constant(source.obj),
    AttrSource: attribute,
    DictOfSource: dict_of,
    TypeOfSource: type_of,
    ItemSource: item,
    MemberSource: member,
    ReferentSource: referent,
    CellSource: cell,
    ModeSource: mode,
    CallSource: lambda out, source: result(out, source.fn, source.base),
    KeptSource: kept,
    ArrayMemorySource: lambda out, source: result(out, as_tensor, source.base),
    EarlySource: lambda out, source: out.load_early(source),
}
