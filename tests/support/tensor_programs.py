"""Runs a program on tensors eagerly and compiled, on equal inputs, and compares all that the program can see."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs
import torch

import armature
from armature.torch_abi import numpy


@attrs.frozen(eq=False)
class Seen:
    """What is left of a run: results or exception, inputs afterwards, torch's state afterwards."""

    result: Any
    error: BaseException | None
    inputs: tuple[Any, ...]
    state: dict[str, Any]


Around = Callable[[], AbstractContextManager[Any]]


def run(function: Callable[..., Any], inputs: tuple[Any, ...], around: Around, backward: bool) -> Seen:
    """Run it from a seed, and backward through what it gives."""
    torch.manual_seed(0)
    result, error = None, None
    try:
        with around():
            result = function(*inputs)
        if backward:
            through(result)
    except Exception as raised:
        error = raised
    state = {
        "random numbers": torch.get_rng_state(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default dtype": torch.get_default_dtype(),
        "default device": str(torch.get_default_device()),
    }
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    return Seen(result, error, inputs, state)


def through(result: Any) -> None:
    """Backward from the sum of all results that need gradients."""
    outputs = [t for t in leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    if outputs:
        torch.stack([t.double().sum() for t in outputs]).sum().backward()  # type: ignore[no-untyped-call]


def compare(
    function: Callable[..., Any],
    make: Callable[[], tuple[Any, ...]],
    *,
    fullgraph: bool,
    around: Around = nullcontext,
    backward: bool = False,
    tolerance: float = 0.0,
) -> None:
    """Compiled as eager, in the first call and in the second. `around`: a context for the calls. tolerance: relative to
    1, of numbers in results and inputs."""
    armature.reset()
    compiled = armature.compile(function, backend="eager", fullgraph=fullgraph)
    for _ in range(2):
        torch.manual_seed(7)
        expected = run(function, make(), around, backward)
        torch.manual_seed(7)
        found = run(compiled, make(), around, backward)
        if expected.error is not None or found.error is not None:
            assert type(found.error) is type(expected.error), (found.error, expected.error)
            assert str(found.error) == str(expected.error)
        same(found.result, expected.result, "result", tolerance)
        same(found.inputs, expected.inputs, "input", tolerance)
        same(found.state, expected.state, "state")
        assert aliases(found) == aliases(expected)


def aliases(seen: Seen) -> list[tuple[int, int, bool]]:
    """Which of the tensors in results and inputs are one object, or share memory."""
    held = [numpy.as_tensor(t) if numpy.is_array(t) else t for t in leaves((seen.result, seen.inputs))]
    tensors = [t for t in held if isinstance(t, torch.Tensor)]
    found = []
    for i, one in enumerate(tensors):
        for j, other in enumerate(tensors[:i]):
            if one is other:
                found.append((i, j, True))
            elif one.layout is other.layout is torch.strided and storage(one) == storage(other) != 0:
                found.append((i, j, False))
    return found


def storage(tensor: torch.Tensor) -> int:
    """Address of the memory."""
    return tensor.untyped_storage().data_ptr()


def leaves(value: Any) -> list[Any]:
    """What stands in nested containers and objects."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def same(found: Any, expected: Any, what: str, tolerance: float = 0.0) -> None:
    """Equal in all that can be asked of it."""
    assert type(found) is type(expected), what
    if isinstance(expected, torch.Tensor):
        same_tensor(found, expected, what, tolerance)
    elif isinstance(expected, dict):
        assert list(found) == list(expected), what
        for key in expected:
            same(found[key], expected[key], f"{what}[{key!r}]", tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), what
        for position, (one, other) in enumerate(zip(found, expected)):
            same(one, other, f"{what}[{position}]", tolerance)
    elif numpy.is_array(expected):
        same_tensor(numpy.comparable(found), numpy.comparable(expected), what)
        assert getattr(found, "flags", {})["WRITEABLE"] == getattr(expected, "flags", {})["WRITEABLE"], what
    elif isinstance(expected, torch.nn.Module):
        same(dict(found.state_dict()), dict(expected.state_dict()), f"{what}.state_dict()")
        same([p.grad for p in found.parameters()], [p.grad for p in expected.parameters()], f"{what} gradients")
    elif type(expected).__hash__ is not object.__hash__:  # type: ignore[comparison-overlap]
        assert found == expected or (found != found and expected != expected), what


def same_tensor(found: torch.Tensor, expected: torch.Tensor, what: str, tolerance: float = 0.0) -> None:
    """Values, dtype, strides, and what autograd knows."""
    torch.testing.assert_close(
        found, expected, rtol=0, atol=tolerance, equal_nan=True, msg=lambda text: f"{what}: {text}"
    )
    assert found.stride() == expected.stride(), what
    assert found.requires_grad == expected.requires_grad, what
    assert found.is_leaf == expected.is_leaf, what
    assert found.is_inference() == expected.is_inference(), what
    assert (found.grad_fn is None) == (expected.grad_fn is None), what
    if expected.is_leaf:
        assert (found.grad is None) == (expected.grad is None), what
        if found.grad is not None and expected.grad is not None:
            same_tensor(found.grad, expected.grad, f"{what}.grad", tolerance)
