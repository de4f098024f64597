"""nn.Module objects: parameters and buffers as graph inputs, submodules, `forward` called straight without hooks."""

from __future__ import annotations

from types import CodeType, FunctionType, NoneType
from typing import TYPE_CHECKING, Any, cast

import attrs
import torch
from torch import nn

from armature.frame.sources import DictOfSource, ItemSource, ObjectSource, Source, object_source
from armature.trace.errors import UserRaised
from armature.trace.trust import is_trusted
from armature.trace.values.base import Args, Kwargs, Value, raise_missing
from armature.trace.values.classes import find_in_class, inherits, rely_on_class
from armature.trace.values.mapping import DictValue
from armature.trace.values.user_object import UserObjectValue, has_own_lookup

if TYPE_CHECKING:
    from armature.trace.values.base import Tracing

REGISTRIES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip
MODULE_HOOKS = ("_global_module_registration_hooks",)
PARAMETER_HOOKS = ("_global_parameter_registration_hooks",)
CALL_METHODS = ("__call__", "_wrapped_call_impl", "_call_impl")
GETTER = nn.Module.__getattr__
SETTER = nn.Module.__setattr__


def calls_plainly(cls: type) -> bool:
    """Whether calling a module of the class is calling its `forward`, as long as there are no hooks."""
    return all(getattr(cls, name, None) is getattr(nn.Module, name, None) for name in CALL_METHODS)


@attrs.define(eq=False)
class ModuleValue(UserObjectValue):
    """An nn.Module of the program, or one made in the frame: then `obj` is None and `attributes` hold everything."""

    obj: Any = None
    registries: dict[str, DictValue] = attrs.field(factory=dict)

    def contents(self) -> object:
        return (super().contents(), self.registries)

    def registry(self, tracer: Tracing, name: str) -> DictValue:
        """The value of `module._parameters`, `module._buffers` or `module._modules`."""
        known = self.registries.get(name)
        if known is None and self.obj is None:
            made = self.attributes.get(name) or self.own_attribute(tracer, name)
            if not isinstance(made, DictValue):
                raise_missing(tracer, self.cls, name)
            return made
        if known is None:
            source = ItemSource(DictOfSource(self.found_at()), name)
            known = registry_dict(tracer, held_by(self.obj)[name], source)
            self.registries[name] = known
        return known

    def found_at(self) -> Source:
        """Where the program has it; what it has nowhere is found by itself."""
        if self.source is None:
            self.source = object_source(self.obj)
        return self.source

    def registered(self, tracer: Tracing, name: str) -> Value | None:
        """The parameter, buffer or submodule of that name, None when there is none."""
        for registry in REGISTRIES:
            known = self.registries.get(registry) if self.obj is not None else self.registry(tracer, registry)
            if known is not None and known.pending is None:
                if name in known.entries:
                    return known.entries[name][1]
            elif name in held_by(self.obj).get(registry, ()):
                return self.registry(tracer, registry).find(tracer, tracer.constant(name))
        return None

    def own_attribute(self, tracer: Tracing, name: str) -> Value | None:
        if self.obj is not None and name in REGISTRIES and name in held_by(self.obj) and name not in self.written:
            return self.registry(tracer, name)
        return super().own_attribute(tracer, name)

    def is_stable(self, name: str) -> bool:
        if name == "forward":
            return False
        # What registers a parameter or submodule first makes sure that no attribute has its name.
        return is_trusted(self.cls) or find_in_class(self.cls, name) is None or super().is_stable(name)

    def missing(self, tracer: Tracing, name: str, raised: UserRaised | None = None) -> Value:
        if not inherits(self.cls, "__getattr__", nn.Module):
            return super().missing(tracer, name, raised)
        rely_on_class(tracer, self.cls, name, "__getattr__")
        return self.fallback(tracer, name)

    def fallback(self, tracer: Tracing, name: str) -> Value:
        """`nn.Module.__getattr__`."""
        if has_own_lookup(self.cls):  # it is asked for each table
            return tracer.calls.inline_python(GETTER, (self, tracer.constant(name)), {})
        found = self.registered(tracer, name)
        if found is None:
            for registry in REGISTRIES:
                self.registry(tracer, registry).find(tracer, tracer.constant(name))
            if self.obj is not None and name not in self.written and name not in held_by(self.obj):
                tracer.guards.absent(DictOfSource(self.found_at()), name)
            raise_missing(tracer, self.cls, name)
        return found

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        rely_on_class(tracer, self.cls, "__setattr__")
        if not inherits(self.cls, "__setattr__", nn.Module):
            super().set_attribute(tracer, name, value)
            return
        self.assign(tracer, name, value)

    def assign(self, tracer: Tracing, name: str, value: Value) -> None:
        """`nn.Module.__setattr__`."""
        if has_own_lookup(self.cls):
            tracer.calls.inline_python(SETTER, (self, tracer.constant(name), value), {})
            return
        rely_on_class(tracer, self.cls, name)
        if value.is_tensor and self._keeps_marked(tracer, name, value):
            return
        if self.obj is None and self._register(tracer, name, value):
            return
        kind = value.python_type()
        buffers = self.registry(tracer, "_buffers")
        if name in (buffers.entries if buffers.pending is None else buffers.pending):
            if (value.is_tensor and not issubclass(kind, nn.Parameter)) or issubclass(kind, NoneType):
                buffers.set_item(tracer, tracer.constant(name), value)
                return
        elif self.obj is not None and (self._replace(tracer, name, value) or self._adopt(tracer, name, value)):
            return
        elif not issubclass(kind, (nn.Parameter, nn.Module)) and self.registered(tracer, name) is None:
            self.store(tracer, name, value)
            return
        tracer.graph_break("sets-module-attribute", name=name, type=self.describe())

    def store(self, tracer: Tracing, name: str, value: Value) -> None:
        if self.obj is None or name not in REGISTRIES:
            super().store(tracer, name, value)
            return
        if not isinstance(value, DictValue):
            tracer.graph_break("sets-module-registry", name=name, type=self.describe())
        super().store(tracer, name, value)
        self.registries[name] = value

    def _keeps_marked(self, tracer: Tracing, name: str, value: Value) -> bool:
        """Register a tensor that is marked as a buffer. Whether it is one."""
        mark = tracer.python.attribute_or_none(value, "_is_buffer")
        if mark is None or not mark.as_constant():
            return False
        rely_on_class(tracer, self.cls, "register_buffer")
        held = tracer.python.attribute_or_none(self, name)
        known = self.registry(tracer, "_buffers").find(tracer, tracer.constant(name))
        if not inherits(self.cls, "register_buffer", nn.Module) or (held is not None and known is None):
            tracer.graph_break("sets-buffer", name=name, type=self.describe())
        given = (tracer.constant(name), value, value.get_attribute(tracer, "persistent"))
        self.get_attribute(tracer, "register_buffer").call(tracer, given, {})
        return True

    def _replace(self, tracer: Tracing, name: str, value: Value) -> bool:
        """Put a parameter or None in the place of a parameter. Whether there is one, which nobody watches."""
        if not issubclass(value.python_type(), (nn.Parameter, NoneType)) or name in held_by(self.obj):
            return False
        known = {table: self.registry(tracer, table).find(tracer, tracer.constant(name)) for table in REGISTRIES}
        if known["_parameters"] is None or known["_buffers"] is not None or known["_modules"] is not None:
            return False
        if not no_global_hooks(tracer, PARAMETER_HOOKS):
            return False
        self.registry(tracer, "_parameters").set_item(tracer, tracer.constant(name), value)
        return True

    def _adopt(self, tracer: Tracing, name: str, value: Value) -> bool:
        """Put a module among the submodules, or None in the place of one. Whether nothing else has the name, or
        watches."""
        emptied = issubclass(value.python_type(), NoneType)
        if not (emptied or isinstance(value, ModuleValue)) or name in REGISTRIES or self.instance_dict is not None:
            return False
        if emptied and self.registry(tracer, "_modules").find(tracer, tracer.constant(name)) is None:
            return False
        others = ("_parameters", "_buffers")
        if any(self.registry(tracer, table).find(tracer, tracer.constant(name)) is not None for table in others):
            return False
        if name in held_by(self.obj).get("_non_persistent_buffers_set", ()) or not no_global_hooks(
            tracer, MODULE_HOOKS
        ):
            return False
        if not emptied:
            self._uncover(tracer, name)
        self.registry(tracer, "_modules").set_item(tracer, tracer.constant(name), value)
        return True

    def _uncover(self, tracer: Tracing, name: str) -> None:
        """Delete the attribute of that name, which would hide a submodule."""
        if self.attributes.get(name) is not None or self.own_attribute(tracer, name) is not None:
            super().remove(tracer, name)
        elif name not in held_by(self.obj):
            tracer.guards.absent(DictOfSource(self.found_at()), name)

    def _register(self, tracer: Tracing, name: str, value: Value) -> bool:
        """For a module made in the frame: keep a parameter or submodule where it belongs. Whether it is one."""
        kinds = {"_parameters": nn.Parameter, "_modules": nn.Module}
        kind = value.python_type()
        wanted = next((table for table, base in kinds.items() if issubclass(kind, base)), None)
        if wanted is None:
            if not (value.is_constant and value.as_constant() is None and "_modules" in self.attributes):
                return False
            wanted = next((table for table in kinds if name in self.registry(tracer, table).entries), None)
        if wanted is None:
            return False
        for table in REGISTRIES:
            if table != wanted and name in self.registry(tracer, table).entries:
                self.registry(tracer, table).delete_item(tracer, tracer.constant(name))
        hidden = tracer.python.attribute_or_none(self, "_non_persistent_buffers_set")
        if hidden is not None and not value.is_constant:
            hidden.call_method(tracer, "discard", (tracer.constant(name),), {})
        if self.attributes.pop(name, None) is not None:
            self.written.pop(name, None)
        self.registry(tracer, wanted).set_item(tracer, tracer.constant(name), value)
        return True

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        rely_on_class(tracer, self.cls, "forward", *CALL_METHODS)
        if not calls_plainly(self.cls) or not self._has_no_hooks(tracer):
            return super().call(tracer, args, kwargs)
        forward = self.get_attribute(tracer, "forward")
        return forward.call(tracer, args, kwargs)

    def direct_code(self, tracer: Tracing) -> CodeType | None:
        found = find_in_class(self.cls, "forward")
        plain = calls_plainly(self.cls) and found is not None and isinstance(found.obj, FunctionType)
        return tracer.as_value(found.obj).direct_code(tracer) if plain and found is not None else None

    def _has_no_hooks(self, tracer: Tracing) -> bool:
        if self.obj is None:
            tables = [self.attributes.get(name) for name in HOOKS]
            plain = all(isinstance(table, DictValue) and not table.entries for table in tables)
            return plain and "_compiled_call_impl" not in self.attributes and no_global_hooks(tracer, GLOBAL_HOOKS)
        held = held_by(self.obj)
        if any(held.get(name) for name in HOOKS) or self.written.keys() & {*HOOKS, "_compiled_call_impl"}:
            return False
        if held.get("_compiled_call_impl") is not None or not no_global_hooks(tracer, GLOBAL_HOOKS):
            return False
        where = DictOfSource(self.found_at())
        if id(self) not in tracer.called:
            tracer.called.add(id(self))
            for name in HOOKS:
                tracer.guards.length(ItemSource(where, name), 0)
            tracer.guards.absent(where, "_compiled_call_impl")
        return True


def held_by(module: nn.Module) -> dict[str, Any]:
    """The dict of a module, whatever `__getattribute__` its class has."""
    return cast("dict[str, Any]", object.__getattribute__(module, "__dict__"))


def registry_dict(tracer: Tracing, real: dict[str, object], source: Source) -> DictValue:
    """`_parameters`, `_buffers` or `_modules` of a module: always dicts, by what nn.Module does."""
    held = tracer.by_id.get(id(real))
    if held is not None and isinstance(held[1], DictValue):
        return held[1]
    return tracer.remember(real, DictValue({}, type(real), None, real, source=source))


def is_module(obj: object) -> bool:
    """Whether the object is an nn.Module that is not compiled by TorchScript."""
    return issubclass(type(obj), nn.Module) and not issubclass(type(obj), torch.jit.ScriptModule)


def no_global_hooks(tracer: Tracing, names: tuple[str, ...]) -> bool:
    """Whether no hook is registered for all modules; guarded."""
    namespace = vars(nn.modules.module)
    if any(namespace[name] for name in names):
        return False
    for name in names:
        tracer.guards.length(ObjectSource(namespace[name], f"torch.nn.modules.module.{name}"), 0)
    return True
