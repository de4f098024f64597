"""The tensors of results: found in any structure, compared with eager mode and with float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import torch
from torch.utils import _pytree as pytree

DEPTH = 8
FLOOR = 5e-5  # for float32: the effect of another summation order
FACTOR = 10.0  # how much farther than eager mode a result may be from float64
# eager mode is so far from float64 (routing, thresholds) that results are compared with eager mode instead
UNSTABLE = 1e-2
LOOSE = 1e-3


def tensors_of(value: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of a result with its path: in containers, dataclasses, and objects such as caches."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth > DEPTH or value is None or isinstance(value, (str, bytes, int, float, complex, type)):
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_of(item, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            yield from tensors_of(item, f"{path}[{number}]", depth + 1)
    elif not isinstance(value, torch.nn.Module) and hasattr(value, "__dict__") and not callable(value):
        for key, item in vars(value).items():
            yield from tensors_of(item, f"{path}.{key}" if path else key, depth + 1)


def converted(value: Any, convert: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A structure of arguments with each tensor converted."""
    return pytree.tree_map_only(torch.Tensor, convert, value)


def to_double(value: Any) -> Any:
    """Arguments in float64."""
    return converted(value, lambda t: t.double() if t.is_floating_point() else t)


def fresh(value: Any) -> Any:
    """A copy of arguments, so that a model's writes to them only affect one call."""
    return converted(value, lambda t: t.detach().clone().requires_grad_(t.requires_grad))


def weighted_sum(value: object) -> torch.Tensor | None:
    """A loss: a sum of every differentiable tensor of a result with varying weights. None if there is none."""
    total: torch.Tensor | None = None
    for _, tensor in tensors_of(value):
        if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.requires_grad or not tensor.numel():
            continue
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        flat = real.reshape(-1)
        weights = torch.cos(torch.arange(flat.numel(), device=flat.device, dtype=torch.float32)).to(flat.dtype)
        part = (flat * weights).mean()
        total = part if total is None else total + part.to(total.dtype)
    return total


@attrs.frozen(eq=False)
class Kept:
    """A tensor's values, dense and on the CPU, and its original strides."""

    values: torch.Tensor
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Kept:
        """A copy of a tensor."""
        tensor = tensor.detach()
        if tensor.layout is not torch.strided:
            tensor = tensor.to_dense()
        return cls(tensor.to("cpu", copy=True).contiguous(), tensor.stride())


@attrs.define(eq=False)
class Results:
    """The tensors of one call's results, by group ("output", "gradient", "state", "argument") and path."""

    groups: dict[str, dict[str, Kept]] = attrs.field(factory=dict)

    def keep(self, group: str, tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Keep copies of tensors."""
        kept = self.groups.setdefault(group, {})
        for path, tensor in tensors:
            kept[path] = Kept.of(tensor)


@attrs.frozen
class Difference:
    """A tensor that differs. `error` and `allowed` are relative to the tensor's largest number."""

    group: str
    path: str
    kind: str  # "missing", "extra", "dtype", "shape", "strides", "not finite", "value"
    detail: str
    error: float = 0.0
    allowed: float = 0.0


def error_of(found: torch.Tensor, exact: torch.Tensor, scale: float) -> float:
    """The largest difference relative to the scale, where both are finite."""
    kind = torch.complex128 if exact.is_complex() else torch.float64
    difference = (found.to(kind) - exact.to(kind)).abs()
    difference = difference[difference.isfinite()]
    return float(difference.max()) / scale if difference.numel() else 0.0


def largest(tensor: torch.Tensor) -> float:
    """The largest finite absolute value."""
    values = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64).abs()
    values = values[values.isfinite()]
    return float(values.max()) if values.numel() else 0.0


def same_kinds_of_numbers(found: torch.Tensor, eager: torch.Tensor) -> bool:
    """Whether NaN and infinities are at the same positions."""
    if not (eager.is_floating_point() or eager.is_complex()):
        return True
    return bool((found.isnan() == eager.isnan()).all()) and bool((found.isinf() == eager.isinf()).all())


def differences(found: Results, eager: Results, exact: Results | None) -> list[Difference]:
    """Differences from eager mode's results beyond what float32 explains, measured against float64."""
    wrong: list[Difference] = []
    for group, tensors in eager.groups.items():
        others = found.groups.get(group, {})
        wrong += [Difference(group, path, "missing", "eager mode has it") for path in tensors if path not in others]
        wrong += [Difference(group, path, "extra", "eager mode lacks it") for path in others if path not in tensors]
        pairs = {path: (others[path], tensor) for path, tensor in tensors.items() if path in others}
        wrong += _group_differences(group, pairs, {} if exact is None else exact.groups.get(group, {}))
    return wrong


def _group_differences(
    group: str, pairs: Mapping[str, tuple[Kept, Kept]], exact: Mapping[str, Kept]
) -> Iterator[Difference]:
    # A value that is zero except for rounding is compared with the largest number of its kind in the model.
    floats = [eager.values for _, eager in pairs.values() if eager.values.is_floating_point()]
    top = max(map(largest, floats), default=0.0) if group in ("gradient", "state") else 0.0
    for path, (found, eager) in pairs.items():
        if formal := _formal_difference(found.values, eager.values):
            yield Difference(group, path, *formal)
            continue
        scale = max(largest(eager.values), 1e-3 * top, 1e-30)
        reference = exact[path].values if path in exact else None
        if (wrong := _value_difference(found.values, eager.values, reference, scale)) is not None:
            yield Difference(group, path, "value", f"{wrong[0]:.1e} off, {wrong[1]:.1e} allowed", *wrong)
        elif _strides_differ(found.strides, eager.strides, eager.values):
            yield Difference(group, path, "strides", f"{found.strides} for {eager.strides}")


def _value_difference(
    found: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor | None, scale: float
) -> tuple[float, float] | None:
    """The error and the allowed error, if it is exceeded."""
    floor, close = floor_of(eager.dtype), error_of(found, eager, scale)
    if close <= floor:
        return None
    near = UNSTABLE if exact is None or exact.shape != eager.shape else error_of(eager, exact, scale)
    if exact is None or near >= UNSTABLE:
        return (close, LOOSE) if close > LOOSE else None
    error, allowed = error_of(found, exact, scale), floor + FACTOR * near
    return (error, allowed) if error > allowed else None


def floor_of(dtype: torch.dtype) -> float:
    """The effect of rounding in a dtype; zero for integers."""
    if dtype.is_floating_point or dtype.is_complex:
        return FLOOR * torch.finfo(dtype).eps / torch.finfo(torch.float32).eps
    return 0.0


def _formal_difference(found: torch.Tensor, eager: torch.Tensor) -> tuple[str, str] | None:
    if found.dtype != eager.dtype:
        return "dtype", f"{found.dtype} for {eager.dtype}"
    if found.shape != eager.shape:
        return "shape", f"{tuple(found.shape)} for {tuple(eager.shape)}"
    if not same_kinds_of_numbers(found, eager):
        return "not finite", "NaN or infinite at other places"
    return None


def _strides_differ(found: tuple[int, ...], eager: tuple[int, ...], values: torch.Tensor) -> bool:
    if values.numel() < 2:
        return False
    return any(a != b for a, b, size in zip(found, eager, values.shape) if size > 1)
