"""Comparison with eager: values, dtypes, shapes, strides, gradients, buffers and exceptions of two runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from armature.errors import ArmatureError
from armature.torch_abi import numpy


class Mismatch(ArmatureError):
    """Two runs of one program differ."""

    code = "A950"
    text = "{path}: {what}: eager {eager}, compiled {compiled}"
    hint = "Run with ARMATURE_SHOW=code and compare the stages with `armature code`."


@attrs.frozen
class Run:
    """The results of one run of a model. `grads` and `buffers` by name; `error` if it raised."""

    output: object
    grads: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]
    error: BaseException | None = None


def leaves(value: object, path: str = "output") -> Iterator[tuple[str, object]]:
    """Tensors and other leaves of nested tuples, lists, dicts and dataclasses, each with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for position, item in enumerate(value):
            yield from leaves(item, f"{path}[{position}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}")
    else:
        yield path, value


def difference(eager: object, compiled: object, path: str = "output", *, strides: bool = True) -> float:
    """Largest absolute difference of all tensors. Errors: Mismatch if structure, dtype, shape or strides differ."""
    if type(eager) is not type(compiled) and not isinstance(eager, Tensor):
        raise Mismatch(path=path, what="type", eager=type(eager).__name__, compiled=type(compiled).__name__)
    ours, theirs = list(leaves(compiled, path)), list(leaves(eager, path))
    if [p for p, _ in ours] != [p for p, _ in theirs]:
        raise Mismatch(path=path, what="structure", eager=[p for p, _ in theirs], compiled=[p for p, _ in ours])
    return max((_leaf(p, a, b, strides) for (p, a), (_, b) in zip(theirs, ours, strict=True)), default=0.0)


def _leaf(path: str, eager: object, compiled: object, strides: bool) -> float:
    """The largest difference of two leaves; raises Mismatch if rounding can't explain it."""
    if numpy.is_array(eager) and type(eager) is type(compiled):
        eager, compiled = numpy.comparable(eager), numpy.comparable(compiled)
    if not isinstance(eager, Tensor) or not isinstance(compiled, Tensor):
        same = eager == compiled or (eager != eager and compiled != compiled)
        if not same or type(eager) is not type(compiled):
            raise Mismatch(path=path, what="value", eager=eager, compiled=compiled)
        return 0.0
    checks: dict[str, Callable[[Tensor], object]] = {
        "dtype": lambda t: t.dtype,
        "shape": lambda t: tuple(t.shape),
        "device": lambda t: t.device,
        "requires_grad": lambda t: t.requires_grad,
    }
    if strides and eager.numel() > 1:
        checks["strides"] = lambda t: tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1)
    for what, read in checks.items():
        if read(eager) != read(compiled):
            raise Mismatch(path=path, what=what, eager=read(eager), compiled=read(compiled))
    if eager.numel() == 0:
        return 0.0
    a, b = eager.detach(), compiled.detach()
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(wide), b.to(wide)
    if not torch.equal(torch.isnan(a), torch.isnan(b)):
        raise Mismatch(path=path, what="positions of NaN", eager=int(a.isnan().sum()), compiled=int(b.isnan().sum()))
    gap = torch.where((a == b) | torch.isnan(a), 0.0, (a - b).abs())
    return float(gap.max())


def run_model(
    model: nn.Module,
    call: Callable[..., Any],
    inputs: tuple[Any, ...],
    loss: Callable[[Any], Tensor] | None = None,
    seed: int = 0,
) -> Run:
    """Call `call(*inputs)`; if `loss` is given, differentiate it with respect to the model's parameters."""
    torch.manual_seed(seed)
    model.zero_grad(set_to_none=True)
    try:
        output = call(*inputs)
        if loss is not None:
            torch.autograd.backward(loss(output))
    except Exception as error:
        return Run(None, {}, {}, error)
    grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return Run(output, grads, {n: b.clone() for n, b in model.named_buffers()})


def compare_runs(eager: Run, compiled: Run) -> float:
    """Largest absolute difference of outputs, gradients and buffers. Errors: Mismatch, also if only one raised."""
    if eager.error is not None or compiled.error is not None:
        if type(eager.error) is not type(compiled.error):
            raise Mismatch(path="call", what="exception", eager=repr(eager.error), compiled=repr(compiled.error))
        return 0.0
    gaps = [difference(eager.output, compiled.output)]
    gaps.append(difference(dict(eager.grads), dict(compiled.grads), "grad"))
    gaps.append(difference(dict(eager.buffers), dict(compiled.buffers), "buffer"))
    return max(gaps)


def against_eager(
    model: nn.Module,
    compile_model: Callable[[nn.Module], Callable[..., Any]],
    inputs: tuple[Any, ...],
    loss: Callable[[Any], Tensor] | None = None,
) -> float:
    """Run a copy of the model in eager mode, and the compiled model, from the same state and seed; returns the largest
    difference."""
    reference = copy.deepcopy(model)
    eager = run_model(reference, reference, inputs, loss)
    return compare_runs(eager, run_model(model, compile_model(model), inputs, loss))
