"""Functions in TorchScript: a call of one is a node of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature import errors
from armature.pipeline.session import session

EXACT = {"rtol": 0, "atol": 0}
CLOSE: dict[str, Any] = {"eager": EXACT, "auto": {}}


@torch.jit.script
def repeated(x: Tensor, n: int, scale: float = 0.5) -> Tensor:
    for _ in range(n):
        x = x.sin() * scale + x.size(0)
    return x


@torch.jit.script
def several(x: Tensor) -> tuple[Tensor, int, list[Tensor]]:
    return x + 1, x.size(0), [x.cos(), x * 2]


@torch.jit.script
def written(x: Tensor) -> Tensor:
    x.mul_(2)
    return x


@torch.jit.script
def drawn(x: Tensor) -> Tensor:
    return x + torch.rand([3])


@torch.jit.script
def in_script(x: Tensor) -> Tensor:
    if torch.jit.is_scripting():
        x = x + 1
    return x


@torch.jit.script
def branching(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        return x + 1
    return x - 1


@torch.jit.script
def failing(x: Tensor) -> Tensor:
    return x.reshape([7])


def sized(x: Tensor) -> Tensor:
    return x.sin() * x.shape[0] + (1 if x.shape[0] > 2 else 100)


@torch.jit.script_if_tracing
def if_tracing(x: Tensor, y: Tensor | None = None) -> Tensor:
    if y is not None:
        x = x + y
    return x.sin() * x.shape[0]


traced = torch.jit.trace(sized, torch.ones(3))


def writes(x: Tensor) -> Tensor:
    y = x * 2
    z = y[1:]
    written(y)
    return z + y.sum()


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "script": lambda x: repeated(x + 1, 3).cos(),
    "keywords": lambda x: repeated(x, n=2, scale=0.25) * 2,
    "a size": lambda x: repeated(x, x.shape[0]) + 1,
    "several results": lambda x: [several(x)[0] * several(x)[1], *several(x)[2]],
    "trace": lambda x: traced(x) + 1,
    "what only scripts do": lambda x: in_script(x * 2),
    "writes": writes,
    "an argument back": lambda x: written(x.clone()) + 1,
    "if tracing": lambda x: if_tracing(x) + if_tracing(x, x),
}


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_one_graph(name: str, gradient: bool, backend: str) -> None:
    """For all sizes: a traced function keeps the size it was traced with, as in eager mode."""
    armature.reset()
    quick = armature.compile(PROGRAMS[name], backend=backend, fullgraph=True)
    for size in (3, 3, 4, 6, 2):
        inputs = [torch.linspace(-1, 1, size).requires_grad_(gradient) for _ in range(2)]
        results = [quick(inputs[0]), PROGRAMS[name](inputs[1])]
        torch.testing.assert_close(*results, **CLOSE[backend])
        if gradient:
            for result in results:
                torch.cat(result if isinstance(result, list) else [result]).square().sum().backward()
            torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-5, atol=1e-5)


@torch.jit.script
def softly(x: Tensor, value: float, more: float = 0.5) -> Tensor:
    return torch.cat([(x / value).tanh(), torch.add(x, x, alpha=2)]) * more


def test_a_sequence_of_operators_is_part_of_the_graph() -> None:
    for call in (lambda x: softly(x + 1, 2.0) * 3, lambda x: softly(x, more=1.5, value=3.0).sum()):
        armature.reset()
        graphs: list[list[str]] = []

        def backend(module: torch.fx.GraphModule, _: Any, graphs: list[list[str]] = graphs) -> Callable[..., Any]:
            graphs.append([str(node.target) for node in module.graph.nodes if node.op == "call_function"])
            return module.forward

        x = torch.linspace(-1, 1, 4, requires_grad=True)
        torch.testing.assert_close(armature.compile(call, backend=backend)(x), call(x), **EXACT)
        assert "aten.tanh.default" in graphs[0]
        assert len(graphs) == 1


@torch.jit.script
def scaled(x: Tensor, n: int, flag: bool = True) -> Tensor:
    """As attention divides by a root of a size; dtypes are numbers in TorchScript, sizes and their arithmetic no
    operators."""
    root = torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * n)
    odd = -(x.size(0) * 3 - n) // 2 + x.dim()
    made = torch.tensor(odd) + torch.tensor(x.size(-1) / n) + torch.tensor(flag) + torch.tensor(0.5, dtype=torch.double)
    return (x / root).to(torch.float64) + made.to(torch.int32) + torch.zeros([2, 1], dtype=torch.bfloat16)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("gradient", [False, True])
def test_numbers_and_dtypes_of_a_script_are_part_of_the_graph(gradient: bool, backend: str) -> None:
    armature.reset()
    quick = armature.compile(lambda x, n: scaled(x + 1, n).cos() * 2, backend=backend, fullgraph=True)
    for size, n in ((3, 2), (3, 2), (4, 2), (7, 2), (6, 3), (5, 5)):
        inputs = [torch.linspace(-1, 1, 2 * size).view(2, size).requires_grad_(gradient) for _ in range(2)]
        ours, theirs = quick(inputs[0], n), scaled(inputs[1] + 1, n).cos() * 2
        assert ours.dtype == theirs.dtype == torch.float64
        torch.testing.assert_close(ours, theirs, **CLOSE[backend])
        if gradient:
            ours.sum().backward()
            theirs.sum().backward()
            torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    if backend == "auto":
        assert all(len(record.graphs) == 1 + gradient for record in session().compilations)


@torch.jit.script
def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.cos() * 0.5, x.sum(dim=0) * 0.5


def test_a_sequence_of_operators_with_a_tuple_as_result() -> None:
    armature.reset()
    x = torch.linspace(-1, 1, 4)
    quick = armature.compile(lambda x: [part * 2 for part in halves(x + 1)], fullgraph=True)
    torch.testing.assert_close(quick(x), [part * 2 for part in halves(x + 1)])
    (record,) = session().compilations
    assert len(record.graphs) == 1


def test_an_int_for_a_float_is_converted_as_torchscript_does() -> None:
    armature.reset()
    x = torch.arange(4)
    quick = armature.compile(lambda x: softly(x, 2) + 1, backend="eager", fullgraph=True)
    torch.testing.assert_close(quick(x), softly(x, 2) + 1, **EXACT)


@pytest.mark.parametrize("gradient", [False, True])
def test_what_is_around_a_script_is_compiled(gradient: bool) -> None:
    armature.reset()
    x = torch.linspace(-1, 1, 4, requires_grad=gradient)
    quick = armature.compile(lambda x: repeated(x.sin() + 1, 3).cos() * 2, fullgraph=True)
    torch.testing.assert_close(quick(x), repeated(x.sin() + 1, 3).cos() * 2)
    (record,) = session().compilations
    assert len(record.graphs) >= 2


def test_an_argument_is_written_to() -> None:
    armature.reset()
    quick = armature.compile(lambda x: written(x) + 1, backend="eager", fullgraph=True)
    x = torch.ones(3)
    assert quick(x).tolist() == [3, 3, 3]
    assert x.tolist() == [2, 2, 2]
    assert x._version == 1


def test_random_numbers_are_drawn_as_in_eager_mode() -> None:
    armature.reset()
    quick = armature.compile(lambda x: drawn(x) + 1, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.manual_seed(1)
        ours = [quick(torch.ones(3)), torch.rand(2)]
        torch.manual_seed(1)
        torch.testing.assert_close(ours, [drawn(torch.ones(3)) + 1, torch.rand(2)], **EXACT)


def test_another_function_compiles_again() -> None:
    armature.reset()
    holder = {"fn": in_script}
    quick = armature.compile(lambda x: holder["fn"](x) * 2, backend="eager", fullgraph=True)
    assert quick(torch.zeros(2)).tolist() == [2, 2]
    holder["fn"] = branching
    with pytest.raises(errors.ArmatureError):
        quick(torch.ones(2))
    holder["fn"] = in_script
    assert quick(torch.zeros(2)).tolist() == [2, 2]


def test_a_branch_on_numbers_breaks() -> None:
    armature.reset()
    quick = armature.compile(lambda x: branching(x * 2) * 3, backend="eager")
    for x in (torch.ones(2), -torch.ones(2)):
        torch.testing.assert_close(quick(x), branching(x * 2) * 3, **EXACT)
    assert any(record.breaks for record in session().compilations)


def test_errors_are_those_of_eager_mode() -> None:
    armature.reset()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="TorchScript interpreter"):
            armature.compile(lambda x: failing(x + 1), backend="eager")(torch.ones(3))


class Twice(torch.nn.Module):
    """A module for TorchScript."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2


in_torchscript, traced_module = torch.jit.script(Twice()), torch.jit.trace(Twice(), torch.ones(2))
MODULE_CALLS: dict[str, Callable[[Tensor], Any]] = {
    "scripted": lambda x: in_torchscript(x + 1) * 3,
    "traced": lambda x: traced_module(x + 1) * 3,
    "a method": lambda x: in_torchscript.forward(x + 1) * 3,
    "an attribute": lambda x: (x + 1) * (3 if in_torchscript.training else 4),
}


@pytest.mark.parametrize("name", MODULE_CALLS)
def test_modules_break_the_graph_once_and_the_reason_names_torchscript(name: str) -> None:
    armature.reset()
    x = torch.linspace(-1, 1, 4)
    torch.testing.assert_close(armature.compile(MODULE_CALLS[name])(x), MODULE_CALLS[name](x))
    assert [found.type.id for found in armature.explain(MODULE_CALLS[name])(x).breaks] == ["torch-script"]
