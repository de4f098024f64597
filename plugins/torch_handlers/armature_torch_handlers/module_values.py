"""nn.Module objects: parameters and buffers as graph inputs, submodules, and direct calls of `forward` without
hooks."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import cast

import attrs
import torch
from torch import nn

from armature.plugin_api import (
    Args,
    DictOfSource,
    DictValue,
    ItemSource,
    Kwargs,
    ObjectSource,
    ObjectValue,
    SkipFrame,
    Source,
    Tracing,
    Value,
    ValueType,
    find_in_class,
    inherits,
    is_trusted,
    object_source,
    raise_missing,
    rely_on_class,
)

REGISTRIES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip
CALL_METHODS = ("__call__", "_wrapped_call_impl", "_call_impl")
GETTER = nn.Module.__getattr__
SETTER = nn.Module.__setattr__


def calls_plainly(cls: type) -> bool:
    """Whether calling a module of the class, without hooks, only calls its `forward`."""
    return all(getattr(cls, name, None) is getattr(nn.Module, name, None) for name in CALL_METHODS)


@attrs.define(eq=False)
class ModuleValue(ObjectValue):
    """An nn.Module of the program, or one made in the frame: then `obj` is None and `attributes` has everything."""

    obj: nn.Module | None = None
    registries: dict[str, DictValue] = attrs.field(factory=dict)

    def contents(self) -> object:
        return (super().contents(), self.registries)

    def registry(self, tracer: Tracing, name: str) -> DictValue:
        """The value of `module._parameters`, `module._buffers` or `module._modules`."""
        known = self.registries.get(name)
        if known is not None:
            return known
        if self.obj is None:
            made = self.attributes.get(name) or self.own_attribute(tracer, name)
            if not isinstance(made, DictValue):
                raise_missing(tracer, self.cls, name)
            return made
        source = ItemSource(DictOfSource(self.found_at()), name)
        self.registries[name] = registry_dict(tracer, registries_of(self.obj)[name], source)
        return self.registries[name]

    def found_at(self) -> Source:
        """The source of the module in the program, if it has one."""
        if self.source is None:
            self.source = object_source(self.obj)
        return self.source

    def registered(self, tracer: Tracing, name: str) -> Value | None:
        """The parameter, buffer or submodule of that name; None if there is none."""
        for registry in REGISTRIES:
            held = None if self.obj is None else registries_of(self.obj).get(registry, {})
            if held is None or registry in self.registries or id(held) in tracer.objects.by_id:
                known = self.registry(tracer, registry)
                if name in known.entries:
                    return known.entries[name][1]
                if known.pending is None:
                    continue
            if held is not None and name in held:
                return self.registry(tracer, registry).find(tracer, tracer.constant(name))
        return None

    def own_attribute(self, tracer: Tracing, name: str) -> Value | None:
        if self.obj is not None and name in REGISTRIES and name in held_by(self.obj) and name not in self.written:
            return self.registry(tracer, name)
        return super().own_attribute(tracer, name)

    def is_stable(self, name: str) -> bool:
        if name == "forward":
            return False
        # Registering a parameter or submodule first checks that no attribute has its name.
        return is_trusted(self.cls) or find_in_class(self.cls, name) is None or super().is_stable(name)

    def missing(self, tracer: Tracing, name: str) -> Value:
        if not inherits(self.cls, "__getattr__", nn.Module):
            return super().missing(tracer, name)
        rely_on_class(tracer, self.cls, name, "__getattr__")
        return self.fallback(tracer, name)

    def fallback(self, tracer: Tracing, name: str) -> Value:
        """`nn.Module.__getattr__`."""
        if tracer.types.has_own(self.cls, "__getattribute__"):  # it is asked for each table
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
        if tracer.types.has_own(self.cls, "__getattribute__"):
            tracer.calls.inline_python(SETTER, (self, tracer.constant(name), value), {})
            return
        rely_on_class(tracer, self.cls, name)
        plain = not issubclass(value.python_type(), (nn.Parameter, nn.Module)) and not self._is_marked(tracer, value)
        held = self.registered(tracer, name)
        if plain and held is None:
            self.store(tracer, name, value)
            return
        if plain and value.is_tensor:
            buffers = self.registry(tracer, "_buffers")
            if buffers.find(tracer, tracer.constant(name)) is held:
                buffers.set_item(tracer, tracer.constant(name), value)
                return
        tracer.calls.inline_python(SETTER, (self, tracer.constant(name), value), {})

    def _is_marked(self, tracer: Tracing, tensor: Value) -> bool:
        """Whether a tensor is marked as a buffer."""
        mark = tracer.python.attribute_or_none(tensor, "_is_buffer") if tensor.is_tensor else None
        return mark is not None and bool(mark.as_constant())

    def store(self, tracer: Tracing, name: str, value: Value) -> None:
        if self.obj is None or name not in REGISTRIES:
            super().store(tracer, name, value)
            return
        if not isinstance(value, DictValue):
            tracer.graph_break("sets-module-registry", name=name, type=self.describe())
        super().store(tracer, name, value)
        self.registries[name] = value

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        rely_on_class(tracer, self.cls, "forward", *CALL_METHODS)
        if not calls_plainly(self.cls) or not self._has_no_hooks(tracer):
            return super().call(tracer, args, kwargs)
        forward = self.get_attribute(tracer, "forward")
        return forward.call(tracer, args, kwargs)

    def direct_code(self, tracer: Tracing) -> CodeType | None:
        if not calls_plainly(self.cls):
            return super().direct_code(tracer)
        found = find_in_class(self.cls, "forward")
        plain = found is not None and isinstance(found.obj, FunctionType)
        return tracer.as_value(found.obj).direct_code(tracer) if plain and found is not None else None

    def _has_no_hooks(self, tracer: Tracing) -> bool:
        if self.obj is None:
            tables = [self.own_attribute(tracer, name) or self.attributes.get(name) for name in HOOKS]
            plain = all(isinstance(table, DictValue) and not table.entries for table in tables)
            compiled = self.attributes.get("_compiled_call_impl") or self.own_attribute(tracer, "_compiled_call_impl")
            return plain and compiled is None and no_global_hooks(tracer, GLOBAL_HOOKS)
        held = held_by(self.obj)
        if any(held.get(name) for name in HOOKS) or self.written.keys() & {*HOOKS, "_compiled_call_impl"}:
            return False
        if any(is_changed(tracer, held.get(name)) for name in HOOKS):
            return False
        if held.get("_compiled_call_impl") is not None or not no_global_hooks(tracer, GLOBAL_HOOKS):
            return False
        where = DictOfSource(self.found_at())
        if id(self) not in tracer.objects.called:
            tracer.objects.called.add(id(self))
            for name in HOOKS:
                tracer.guards.length(ItemSource(where, name), 0)
            tracer.guards.absent(where, "_compiled_call_impl")
        return True


def held_by(module: nn.Module) -> dict[str, object]:
    """The dict of a module, whatever `__getattribute__` its class has."""
    return cast("dict[str, object]", object.__getattribute__(module, "__dict__"))


def registries_of(module: nn.Module) -> dict[str, dict[str, object]]:
    """The dict of a module, for the tables in it, which nn.Module makes dicts."""
    return cast("dict[str, dict[str, object]]", held_by(module))


def registry_dict(tracer: Tracing, real: dict[str, object], source: Source) -> DictValue:
    """`_parameters`, `_buffers` or `_modules` of a module, which nn.Module always makes dicts."""
    held = tracer.objects.by_id.get(id(real))
    if held is not None and isinstance(held[1], DictValue):
        return held[1]
    if type(real) is not dict:
        wrapped = tracer.objects.wrap(real, source)
        if isinstance(wrapped, DictValue):
            return wrapped
    made = DictValue({}, type(real), real, source=source)
    tracer.objects.remember(real, made)
    return made


def of_program(module: nn.Module, source: Source, tracer: Tracing) -> Value | None:
    """A module of the program; None for one compiled by TorchScript."""
    if issubclass(type(module), torch.jit.ScriptModule):
        return None
    held = held_by(module)
    if not all(name in held for name in REGISTRIES):
        raise SkipFrame("it makes an nn.Module, whose __init__ has not run yet")
    if tracer.types.has_own(type(module), "__getattribute__"):
        tracer.objects.own_lookups.add(source)
    return ModuleValue(type(module), obj=module, source=source)


def is_changed(tracer: Tracing, table: object) -> bool:
    """Whether the frame has registered hooks in a table of them, or removed some."""
    known = tracer.objects.by_id.get(id(table))
    return known is not None and known[1] in tracer.effects.changed


def no_global_hooks(tracer: Tracing, names: tuple[str, ...]) -> bool:
    """Whether no hook is registered for all modules; guarded."""
    namespace = vars(nn.modules.module)
    if any(namespace[name] or is_changed(tracer, namespace[name]) for name in names):
        return False
    for name in names:
        tracer.guards.length(ObjectSource(namespace[name], f"torch.nn.modules.module.{name}"), 0)
    return True


VALUE_TYPES = (ValueType(nn.Module, of_program, derived=True, instance=ModuleValue),)
