"""Source -> manager of torch's guard tree: how C++ reaches the object, by the shortest path that runs no user code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from armature.frame.data import FrameRequest
from armature.frame.guards.paths import Expressions, Resolver
from armature.frame.sources import (
    ArrayMemorySource,
    AttrSource,
    BuiltinSource,
    CallSource,
    CellSource,
    DictOfSource,
    GlobalSource,
    ItemSource,
    KeptSource,
    LocalSource,
    MemberSource,
    ModeSource,
    ObjectSource,
    ReferentSource,
    Source,
    TypeOfSource,
    WeakKey,
)
from armature.introspection import MISSING, class_member
from armature.torch_abi.eval_frame import framelocals_index
from armature.torch_abi.guard_tree import Manager, Root, example
from armature.torch_abi.numpy import as_tensor
from armature.torch_abi.overrides import mode_at, mode_count

MODULE_TABLES = ("_parameters", "_buffers", "_modules")


class Reach:
    """Managers for the sources of one frame, each made once.

    Globals, builtins and objects that no path leads to are entries of one constant dict below the root, which C++ reads
    without entering Python.
    """

    def __init__(self, root: Root, request: FrameRequest) -> None:
        self.root = root
        self.resolver = Resolver(request)
        self._indices = framelocals_index(request.code)
        self._managers: dict[Source, Manager] = {}
        self._roots: dict[object, object] = {"globals": request.globals, "builtins": request.builtins}
        self._anchor: Manager | None = None
        self._anchored: dict[object, Manager] = {}

    def manager(self, source: Source) -> Manager:
        """The manager of the object at the source."""
        if source not in self._managers:
            self._managers[source] = _MAKE[type(source)](self, source)
        return self._managers[source]

    def local(self, source: LocalSource) -> Manager:
        # torch opens cells by itself, so that a variable and a cell are reached alike.
        key = (source.name, self._indices[source.name])
        return self.root.framelocals_manager(key, source.expr, example(self.resolver.value(source)), None)

    def anchored(self, key: object, label: str) -> Manager:
        """The manager of an entry of the constant dict."""
        if self._anchor is None:
            self._anchor = self.root.globals_dict_manager(self._roots, "constants", None, None)
        if key not in self._anchored:
            self._anchored[key] = self._anchor.dict_getitem_manager(key, label, None, None)
        return self._anchored[key]

    def variable(self, source: GlobalSource) -> Manager:
        value = self.resolver.value(source)
        return self.anchored("globals", "globals()").dict_getitem_manager(
            source.name, source.expr, example(value), None
        )

    def builtin(self, source: BuiltinSource) -> Manager:
        value = self.resolver.value(source)
        return self.anchored("builtins", "builtins").dict_getitem_manager(
            source.name, source.expr, example(value), None
        )

    def constant(self, source: ObjectSource) -> Manager:
        if source.obj is self._roots["globals"]:
            return self.anchored("globals", "globals()")
        self._roots[id(source.obj)] = source.obj
        return self.anchored(id(source.obj), source.expr)

    def attribute(self, source: AttrSource) -> Manager:
        base, value = self.resolver.value(source.base), example(self.resolver.value(source))
        path = dict_path(base, source.name)
        manager = self.manager(source.base)
        if path is None:
            return manager.getattr_manager(source.name, source.expr, value, None)
        manager = self.manager(DictOfSource(source.base))
        table = DictOfSource(source.base)
        for key in path[:-1]:
            manager = self.manager(ItemSource(table, key))
        return manager.dict_getitem_manager(path[-1], source.expr, value, None)

    def instance_dict(self, source: DictOfSource) -> Manager:
        base = self.resolver.value(source.base)
        if has_instance_dict(base):
            return self.manager(source.base).get_generic_dict_manager(source.expr, None, None)
        return self.manager(source.base).getattr_manager("__dict__", source.expr, None, None)

    def type_of(self, source: TypeOfSource) -> Manager:
        return self.manager(source.base).type_manager(source.expr, self.resolver.value(source), None)

    def item(self, source: ItemSource | MemberSource) -> Manager:
        base, value = self.resolver.value(source.base), example(self.resolver.value(source))
        manager, key = self.manager(source.base), source.key
        if isinstance(key, WeakKey):
            return manager.lambda_manager(item_getter(key), source.expr, value, None)
        if issubclass(type(base), dict):
            return manager.dict_getitem_manager(key, source.expr, value, None)
        if issubclass(type(base), (list, tuple)) and isinstance(key, int):
            position = key if key >= 0 else key + len(base)
            if issubclass(type(base), list):
                return manager.list_getitem_manager(position, source.expr, value, None)
            return manager.tuple_getitem_manager(position, source.expr, value, None)
        return manager.getitem_manager(key, source.expr, value, None)

    def referent(self, source: ReferentSource) -> Manager:
        value = example(self.resolver.value(source))
        return self.manager(source.base).weakref_call_manager(source.expr, value, None)

    def cell(self, source: CellSource) -> Manager:
        value = example(self.resolver.value(source))
        return self.manager(source.base).getattr_manager("cell_contents", source.expr, value, None)

    def called(self, source: CallSource) -> Manager:
        value = example(self.resolver.value(source))
        return self.manager(source.base).lambda_manager(source.fn, source.expr, value, None)

    def kept(self, source: KeptSource) -> Manager:
        value, names = example(self.resolver.value(source)), Expressions(self.resolver.request)
        if all(isinstance(arg, ObjectSource) for arg in source.args):
            read = eval(f"lambda function: {names.kept(source, 'function')}", names.namespace)
            return self.manager(source.base).lambda_manager(read, source.expr, value, None)
        read = eval(f"lambda L: {names.of(source)}", names.namespace)
        return self.root.lambda_manager(read, source.expr, value, None)

    def array_memory(self, source: ArrayMemorySource) -> Manager:
        value = self.resolver.value(source)
        return self.manager(source.base).lambda_manager(as_tensor, source.expr, value, None)

    def mode(self, source: ModeSource) -> Manager:
        self._roots["modes"] = None
        position = source.position

        def read(_: object) -> object:
            return mode_at(position) if position < mode_count() else None

        return self.anchored("modes", "function_modes()").lambda_manager(read, source.expr, None, None)


_MAKE: dict[type, Callable[[Reach, Any], Manager]] = {
    LocalSource: Reach.local,
    GlobalSource: Reach.variable,
    BuiltinSource: Reach.builtin,
    ObjectSource: Reach.constant,
    AttrSource: Reach.attribute,
    DictOfSource: Reach.instance_dict,
    TypeOfSource: Reach.type_of,
    ItemSource: Reach.item,
    MemberSource: Reach.item,
    ReferentSource: Reach.referent,
    CellSource: Reach.cell,
    ModeSource: Reach.mode,
    CallSource: Reach.called,
    KeptSource: Reach.kept,
    ArrayMemorySource: Reach.array_memory,
}


def item_getter(key: WeakKey) -> Callable[[Any], object]:
    """Reads a dict under a key that is not kept alive. C++ would compare tensors by their elements."""

    def item(found: Any) -> object:
        held = key()
        return MISSING if held is None else dict.get(found, held, MISSING)

    return item


def has_instance_dict(obj: object) -> bool:
    """Whether the object has a dict of its own, of the ordinary kind. A class's is another kind."""
    return type(obj).__dictoffset__ != 0 and not issubclass(type(obj), type)


def dict_path(obj: object, name: str) -> tuple[str, ...] | None:
    """Keys from the object's instance dict to where `obj.name` is found; None when getattr must be asked."""
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
    """The `__getattribute__` with which instances of the object's builtin base look up attributes as `object` does."""
    base = type(obj)
    while base.__flags__ & (1 << 9):  # made by a class statement
        base = base.__base__ or object
    return class_member(base, "__getattribute__")
