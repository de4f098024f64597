"""What `torch.autograd.grad` releases of the histories of fakes: eager mode refuses to differentiate it a second time.

A graph retains it, because AOTAutograd differentiates what the graph returns. Here it is only noted, in the dict that
autograd has for each step of a history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

_C: Any = torch._C
_RELEASED = "armature: released"


@cache
def message() -> str:
    """Autograd's words where something is differentiated that it has released."""
    start = torch.ones((), device="cpu", requires_grad=True)
    with torch.enable_grad():
        end = start.sin()
    torch.autograd.grad(end, start)
    try:
        torch.autograd.grad(end, start)
    except RuntimeError as error:
        return str(error)
    raise RuntimeError("autograd differentiates a history that it has released")


def gradients_releasing(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.autograd.grad` of fakes, which notes what eager mode releases. Raises its error for what was released."""
    run = list(_run(_tensors(outputs), _tensors(inputs)))
    if any(_RELEASED in step.metadata for step in run):
        raise RuntimeError(message())
    saving = [step for step in run if _saves_tensors(step)]
    found = torch.autograd.grad(outputs, inputs, *args, **kwargs)
    for step in saving:
        step.metadata[_RELEASED] = True
    return found


def all_released(tensor: Tensor) -> bool:
    """Whether each way from the tensor back to a leaf comes to something released."""
    if tensor.grad_fn is None:
        return False
    waiting, seen = [tensor.grad_fn], set[Any]()
    while waiting:
        step: Any = waiting.pop()
        if step in seen or _RELEASED in step.metadata:
            continue
        seen.add(step)
        before = _before(step)
        if not before:
            return False
        waiting += before
    return True


def causes(tensor: Tensor, among: Sequence[object]) -> list[int]:
    """The positions of the tensors that gradients of a tensor flow to."""
    steps = {*_history([tensor.grad_fn])}
    leaves = {id(step.variable) for step in steps if hasattr(step, "variable")}
    given = ((k, one) for k, one in enumerate(among) if isinstance(one, Tensor))
    return [k for k, one in given if (id(one) in leaves if one.grad_fn is None else one.grad_fn in steps)]


def with_released_history(tensor: Tensor, causes: Iterable[Tensor]) -> Tensor:
    """The same values with a history that begins at the causes, and that autograd refuses to differentiate."""
    given = (tensor, *causes)
    with torch.enable_grad():
        made: Any = _C._functions.DelayedError(message(), len(given))(*given)
    result: Tensor = made[0]
    return result


def _tensors(given: Any) -> list[Tensor]:
    return [given] if isinstance(given, Tensor) else list(given)


def _before(step: Any) -> list[Any]:
    return [one for one, _ in step.next_functions if one is not None]


def _history(ends: Iterable[Any]) -> Iterator[Any]:
    """All steps that lead to some, each after those before it."""
    waiting, seen = [(step, False) for step in ends if step is not None], set[Any]()
    while waiting:
        step, done = waiting.pop()
        if done:
            yield step
        elif step not in seen:
            seen.add(step)
            waiting += [(step, True), *((one, False) for one in _before(step))]


def _run(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Iterator[Any]:
    """The steps that autograd runs for these gradients: those between the outputs and the inputs."""
    leaves = {id(one) for one in inputs if one.grad_fn is None}
    on_the_way = {one.grad_fn for one in inputs if one.grad_fn is not None}
    for step in _history(one.grad_fn for one in outputs):
        if hasattr(step, "variable"):
            if id(step.variable) in leaves:
                on_the_way.add(step)
        elif not on_the_way.isdisjoint(_before(step)):
            on_the_way.add(step)
            yield step


@cache
def _names_of_saved(kind: Any) -> tuple[str, ...]:
    """The attributes of a class of steps that are saved tensors."""
    if hasattr(kind, "saved_tensors"):  # of an autograd function in Python
        return ("saved_tensors",)
    return tuple(name.removeprefix("_raw") for name in dir(kind) if name.startswith("_raw_saved_"))


def _saves_tensors(step: Any) -> bool:
    """Whether autograd holds tensors for a step, which it then releases."""
    kind: Any = type(step)
    held = [getattr(step, name) for name in _names_of_saved(kind)]
    return any(bool(one) if isinstance(one, tuple) else one is not None for one in held)
