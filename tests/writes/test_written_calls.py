"""Every function of torch that writes to an argument, by its place, by keyword, and with its result dropped."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.tensor_programs import compare
from tests.writes.written_calls import Call, by_schema, by_signature, calls, modules, numbers

TRAINED = (torch.float32, torch.complex64)
PARTS = 8


def programs(call: Call) -> tuple[str, ...]:
    """The bodies of programs that make the call: with its result used and dropped, on a tensor that they have made, on
    a view of one, and on what they are given."""
    written = call.written or tuple(f"o{n}" for n in range(len(call.outs)))
    listed = ", ".join(written)
    text = call.text.replace("OUT", listed if len(written) == 1 else f"({listed})")
    # What is changed bears the argument's own name, so that the text of the call is the same in all of them.
    copies = "; ".join(f"{name} = g{name}.clone()" for name in written)
    views = "; ".join(f"b{name} = torch.stack([g{name}, g{name}], -1); {name} = b{name}[..., 1]" for name in written)
    bases = ", ".join(f"b{name}" for name in written)
    themselves = "; ".join(f"{name} = g{name}" for name in written)
    return (
        f"{copies}; r = {text}; found += [r, {listed}]",
        f"{copies}; {text}; found += [{listed}]",
        f"{views}; {text}; found += [{bases}]",
        f"{themselves}; {text}",
    )


def function(call: Call, *bodies: str) -> Callable[..., Any]:
    """A program as a function of the tensors."""
    names = [f"g{name}" if name in call.written else name for name in call.tensors]
    names += [f"go{n}" for n in range(len(call.outs))]
    lines = "\n    ".join("; ".join(bodies).split("; "))
    space: dict[str, Any] = {"fn": call.fn, "torch": torch}
    exec(f"def program({', '.join(names)}):\n    found = []\n    {lines}\n    return found\n", space)
    return space["program"]  # type: ignore[no-any-return]


def given(call: Call, trains: bool) -> tuple[Tensor, ...]:
    """What the program is called with."""
    tensors = [tensor.clone() for tensor in call.tensors.values()]
    for tensor in tensors:
        tensor.requires_grad_(trains and tensor.dtype in TRAINED)
    return (*tensors, *(torch.zeros_like(out) for out in call.outs))


def check(call: Call) -> None:
    """All programs as eager, in inference and in training: in one, or each by itself if they raise."""
    tolerance = 1e-5 if call.label.startswith("torch.linalg") else 0.0  # LAPACK's last bits: of where memory lies
    for trains in (False, True):
        around = torch.enable_grad if trains else torch.inference_mode
        make = functools.partial(given, call, trains)
        whole = programs(call)[:3] if trains else programs(call)
        try:
            with around():
                function(call, *whole)(*make())
        except Exception:
            together = [(body,) for body in programs(call)]
        else:
            together = [whole, programs(call)[3:]] if trains else [whole]
        for bodies in together:
            program = function(call, *bodies)
            compare(program, make, fullgraph=False, around=around, backward=trains, tolerance=tolerance)


def failures(found: list[Call]) -> list[str]:
    """What differs from eager, a line for each call."""
    lines = []
    for call in found:
        try:
            check(call)
        except Exception as error:
            lines.append(f"{call}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        except AssertionError as error:
            lines.append(f"{call}: {str(error).splitlines()[0] if str(error) else ''}")
    return lines


IN_PYTHON = [call for writer in by_signature() for call in calls(writer)]


@pytest.mark.parametrize("call", IN_PYTHON, ids=str)
@pytest.mark.filterwarnings("ignore:dropout[23]d. Received")
def test_functions_in_python(call: Call) -> None:
    check(call)


def test_the_sweep_finds_what_it_is_for() -> None:
    assert {"torch.nn.functional.leaky_relu", "torch.nn.functional.hardswish", "torch.norm"} <= {
        c.label for c in IN_PYTHON
    }
    assert len(IN_PYTHON) > 40


@pytest.mark.parametrize("cls", list(modules()), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("trains", (False, True))
@pytest.mark.filterwarnings("ignore:dropout[23]d. Received")
def test_modules(cls: type[torch.nn.Module], trains: bool) -> None:
    module = cls(inplace=True) if cls is not torch.nn.Threshold else cls(0.1, 20, True)
    module.train(trains)

    def program(x: Tensor) -> Any:
        a, b = x * 2, x * 3
        module(b[..., :2])
        return module(a), a, b

    def make() -> tuple[Tensor]:
        return (numbers((2, 4, 4), torch.float32).requires_grad_(trains),)

    compare(program, make, fullgraph=True, backward=trains)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_functions_in_c(part: int) -> None:
    writers = sorted(by_schema(), key=lambda writer: writer.label)[part::PARTS]
    found = [call for writer in writers for call in calls(writer)]
    assert len(found) > 30
    assert not failures(found)
