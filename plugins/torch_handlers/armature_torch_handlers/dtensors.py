"""DTensor: a tensor distributed over several processes. Meshes and placements are known while tracing.

The class defines what its operators do on each process; its code runs on fakes and when the graph is compiled.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import torch

from armature.plugin_api import (
    Args,
    BoundMethod,
    Call,
    Kwargs,
    NotConstant,
    Source,
    TracedTensor,
    Tracing,
    Value,
    ValueType,
    existing,
    handles,
)
from armature_torch_handlers.known_values import KnownValue

PLACEMENTS = existing(*(f"torch.distributed.tensor.{name}" for name in ("Shard", "Replicate", "Partial")))
MESHES = existing("torch.distributed.device_mesh.DeviceMesh")
DTENSORS = existing("torch.distributed.tensor.DTensor")
FIELDS = frozenset({"dim", "reduce_op"})
METHODS = frozenset({"is_shard", "is_replicate", "is_partial"})
OPERATORS: dict[str, Callable[[object, object], bool]] = {"__eq__": lambda a, b: a == b, "__ne__": lambda a, b: a != b}


@attrs.define(eq=False)
class PlacementValue(KnownValue):
    """How a tensor is distributed along one dimension of a mesh."""

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in FIELDS and hasattr(self.obj, name):
            constant: Value = tracer.constant(getattr(self.obj, name))
            return constant
        return BoundMethod(self, name) if name in METHODS else super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in METHODS:
            return super().call_method(tracer, name, args, kwargs)
        named = {key: value.as_constant() for key, value in kwargs.items()}
        constant: Value = tracer.constant(getattr(self.obj, name)(*(arg.as_constant() for arg in args), **named))
        return constant

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name not in OPERATORS or not isinstance(other, PlacementValue):
            return super().binary(tracer, name, other)
        constant: Value = tracer.constant(OPERATORS[name](self.obj, other.obj))
        return constant

    def key(self, tracer: Tracing) -> object:
        return self.obj


def placement_of_program(obj: object, source: Source, tracer: Tracing) -> Value:
    """A placement of the program, guarded by equality."""
    tracer.guards.equal(source, obj)
    return PlacementValue(type(obj), obj, source=source)


def mesh_of_program(obj: object, source: Source, tracer: Tracing) -> Value:
    """A mesh of the program, guarded by identity."""
    tracer.guards.same(source, obj)
    return KnownValue(type(obj), obj, source=source)


VALUE_TYPES = (
    *(ValueType(kind, placement_of_program) for kind in PLACEMENTS),
    *(ValueType(kind, mesh_of_program) for kind in MESHES),
)


@handles(*PLACEMENTS)
def placement(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """`Shard(0)`."""
    try:
        plain = [arg.as_constant() for arg in args]
        named = {name: value.as_constant() for name, value in kwargs.items()}
    except NotConstant:
        return None
    try:
        return call.new_value(call.fn(*plain, **named))
    except TypeError as error:
        call.tracing.raise_real(error)


def plain(value: Value) -> object:
    """The Python object of a known argument. Raises NotConstant."""
    return None if value is None else value.as_constant()


def single_node(call: Call, tensor: Value, *args: Value, **kwargs: Value) -> Value | None:
    """A method of DTensor as one node, with its other arguments known."""
    if not isinstance(tensor, TracedTensor):
        return None
    try:
        given = [plain(arg) for arg in args]
        named = {name: plain(value) for name, value in kwargs.items()}
    except NotConstant:
        return None
    return call.graph_call(with_known(call.fn, given, named), tensor)


def with_known(
    fn: Callable[..., object], args: list[object], kwargs: dict[str, object]
) -> Callable[[torch.Tensor], object]:
    """Bind known arguments, because a graph's code can't name meshes and placements."""

    def on_mesh(tensor: torch.Tensor) -> object:
        return fn(tensor, *args, **kwargs)

    on_mesh.__name__ = f"{fn.__name__}_on_mesh"
    return on_mesh


def members(*names: str) -> tuple[Callable[..., object], ...]:
    """The methods of the class."""
    return tuple(getattr(kind, name) for kind in DTENSORS for name in names)


@handles(*members("to_local", "full_tensor", "redistribute"))
def method(call: Call, self: Value, *args: Value, **kwargs: Value) -> Value | None:
    """A method as one node."""
    return single_node(call, self, *args, **kwargs)


@handles(*members("from_local"))
def from_local(
    call: Call, local_tensor: Value, device_mesh: Value | None = None, *args: Value, **kwargs: Value
) -> Value | None:
    """One node. The mesh must be given, and the check of the arguments is skipped, because it would communicate while
    tracing."""
    checks = kwargs.get("run_check")
    if not isinstance(device_mesh, KnownValue) or (checks is not None and checks.truth(call.tracing)):
        return None
    return single_node(call, local_tensor, device_mesh, *args, **kwargs)


@handles(*(getattr(kind, name).fget for kind in DTENSORS for name in ("placements", "device_mesh")))
def layout_of(call: Call, self: Value) -> Value | None:
    """The layout of the tensor's fake; guarded for a tensor of the program."""
    if not isinstance(self, TracedTensor):
        return None
    return call.new_value(getattr(self.fake, call.fn.__name__))
