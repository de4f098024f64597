"""Guards on identity and aliasing: which sources lead to the same object, and which tensors share memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import torch

from armature.frame.guards import memory
from armature.frame.guards.guard import Guard
from armature.frame.guards.kinds import AliasGuard, FamilyGuard, NoAliasGuard, StorageGuard
from armature.frame.sources import AttrSource, CallSource, DictOfSource, ItemSource, Source, is_precomputed
from armature.torch_abi.fake import tensor_of_number, version_of
from armature.torch_abi.jagged import is_jagged, ragged_name, stands_for_ragged
from armature.torch_abi.overrides import dispatches
from armature.torch_abi.wrappers import flatten, is_wrapper
from armature.trace.base import NotConstant, Value
from armature.trace.errors import SkipFrame

if TYPE_CHECKING:
    from armature.trace.base import Tracing
    from armature.trace.values.tensor import TensorValue


def identical(tracer: Tracing, left: Value, right: Value) -> bool:
    """`left is right` for objects with an identity; guarded."""
    same = _same_object(left, right)
    if left.source is not None and right.source is not None:
        if same:
            tracer.guards.alias(left.source, right.source)
        elif left.python_type() is right.python_type():
            tracer.guards.add(NoAliasGuard((left.source, right.source)))
    return same


def _same_object(left: Value, right: Value) -> bool:
    if left is right or left.is_tensor or right.is_tensor:
        return left is right
    try:
        return left.as_object() is right.as_object()
    except NotConstant:
        return False


def guards(tracer: Tracing) -> list[Guard]:
    """Guards that objects and memory alias each other only as while tracing; needed where something is changed."""
    return [*_keys(tracer), *_ragged(tracer), *_objects(tracer), *_tensors(tracer)]


def _ragged(tracer: Tracing) -> list[Guard]:
    """Guard which tensors behind ragged sizes are identical: such sizes are equal if the tensor is the same."""
    if not tracer.fakes.symbols.ragged:
        return []
    found: dict[int, list[Source]] = {}
    for _, value in tracer.objects.by_id.values():
        if not value.is_tensor or value.source is None:
            continue
        tensor = cast("TensorValue", value)
        if is_jagged(tensor.real):
            name = ragged_name(tensor.real)
            found.setdefault(id(getattr(tensor.real, name)), []).append(AttrSource(value.source, name))
        elif stands_for_ragged(tensor.fake):
            found.setdefault(id(tensor.real), []).append(value.source)
    same: list[Guard] = [AliasGuard(one, other) for one, *rest in found.values() for other in rest if other != one]
    firsts = tuple(first for first, *_ in found.values())
    return [*same, NoAliasGuard(firsts)] if len(firsts) > 1 else same


def _keys(tracer: Tracing) -> list[Guard]:
    """Guard that dict keys and set members compared by identity stay distinct."""
    by_type: dict[type, list[Source]] = {}
    for value in tracer.objects.keys:
        if value.source is not None:
            by_type.setdefault(value.python_type(), []).append(value.source)
    return [NoAliasGuard(tuple(sources)) for sources in by_type.values() if len(sources) > 1]


def _objects(tracer: Tracing) -> list[Guard]:
    """Guard that an object changed under one name is not read under another: distinct objects must stay distinct."""
    changed = {_owner(value, tracer).python_type() for value in tracer.effects.changed if value.source is not None}
    if not changed:
        return []
    known = [value for _, value in tracer.objects.by_id.values()]
    values = [value for value in known if not value.is_tensor and _registered_in(value) is None]
    by_type: dict[type, dict[Source, None]] = {kind: {} for kind in changed}
    for value in itertools.chain(values, tracer.objects.cells.values()):
        if value.source is not None and value.python_type() in by_type:
            by_type[value.python_type()][value.source] = None
    groups = [tuple(sources) for sources in by_type.values() if len(sources) > 1]
    return [NoAliasGuard(group) for group in groups if not all(source.is_fixed for source in group)]


def _registered_in(value: Value) -> Source | None:
    """The source of the module whose `_parameters`, `_buffers` or `_modules` this is. No two modules share these."""
    source = value.source
    if isinstance(source, ItemSource) and isinstance(source.base, DictOfSource):
        return source.base.base if source.key in ("_parameters", "_buffers", "_modules") else None
    return None


def _owner(value: Value, tracer: Tracing) -> Value:
    """The object that changes when the value does: for a module's registry, the module."""
    owner = _registered_in(value)
    found = (held for _, held in tracer.objects.by_id.values() if owner is not None and held.source == owner)
    return next(found, value)


def _tensors(tracer: Tracing) -> list[Guard]:
    tensors = cast("list[TensorValue]", [value for value in tracer.recorder.inputs if value.is_tensor])
    if tracer.effects.altered:  # changing a tensor also affects tensors that are not in the graph
        tensors += [value for value in tracer.objects.by_fake.values() if value.node is None]
    inputs = [value for value in tensors if value.real is not None and not _is_temporary(value.source)]
    if not (tracer.recorder.mutates or any(version_of(value.fake) for value in inputs)):
        return []
    found = _families(tracer, inputs)
    if len(inputs) > 1:
        found.append(NoAliasGuard(tuple(_lasting_source(value.source) for value in inputs if value.source is not None)))
    written = [value for value in inputs if _is_written(tracer, value)] or inputs
    memories = [(*pair, value in written) for value in inputs for pair in _memories(value.source, value.real)]
    held = [(source, tensor, changes) for source, tensor, changes in memories if _has_memory(source, tensor, tracer)]
    if len(held) < 2:
        return found
    sources, reals, changed = zip(*held)
    extents = tuple(memory.extent(tensor) for tensor in reals)
    together = memory.sharing([tensor.data_ptr() for tensor in reals], extents, changed)
    checked = tuple(size if tracer.guards.sized(source) else None for size, source in zip(extents, sources))
    return [*found, StorageGuard(sources, checked, changed, together)]


def _is_written(tracer: Tracing, value: TensorValue) -> bool:
    """Whether the graph may write to the memory of a tensor. Among others, it doesn't matter which share memory."""
    effects, has_parts = tracer.effects, is_wrapper(type(value.fake))
    return has_parts or value.is_written or effects.writes_to(value) or effects.writes_uncounted(value)


def _families(tracer: Tracing, inputs: list[TensorValue]) -> list[Guard]:
    """Guard which inputs are views of one base. A tensor that acquires an autograd history passes it on to its base and
    all views of that, in the graph or not."""
    if not any(value.real is not None and value.fake.requires_grad != value.real.requires_grad for value in inputs):
        return []
    found: dict[Source, tuple[torch.Tensor, torch.Tensor]] = {}
    for value in tracer.objects.by_fake.values():
        if value.source is None or value.real is None or _is_temporary(value.source):
            continue
        if _has_memory(value.source, value.real, tracer) and not (value.real.is_leaf and value.real.requires_grad):
            found[value.source] = (value.real, value.fake)
    families = memory.traced_families([*found.values()])
    if families is None:
        raise SkipFrame("it writes to one of several views, and so gives all of them a history")
    return [FamilyGuard(tuple(found), families)] if len(found) > 1 else []


def _memories(source: Source | None, tensor: torch.Tensor | None) -> Iterator[tuple[Source, torch.Tensor]]:
    """The tensor itself, or the inner tensors of a wrapper subclass."""
    if source is not None and tensor is not None and not is_wrapper(type(tensor)):
        yield source, tensor
    elif source is not None and tensor is not None:
        for name, inner in flatten(tensor).tensors.items():
            yield from _memories(AttrSource(source, name), inner)


def _has_memory(source: Source, tensor: torch.Tensor, tracer: Tracing) -> bool:
    """Whether the tensor has storage with an address, or may have some in a later call."""
    if dispatches(type(tensor)) or tensor.layout is not torch.strided or tensor.device.type == "meta":
        return False
    return tensor.numel() > 0 or not tracer.guards.sized(source)


def _is_temporary(source: Source | None) -> bool:
    """Whether the tensor is made anew for each call: it aliases nothing, though it may reuse a freed address."""
    made = isinstance(source, CallSource) and source.fn is tensor_of_number
    return made or source is None or is_precomputed(source)


def _lasting_source(source: Source) -> Source:
    """The array's source, for a tensor that is made anew over an array's memory, often at one address."""
    return source.base if isinstance(source, CallSource) and source.shares else source
