"""torch.jit, torch.fx, torch.export and torch.onnx beside armature: of what was compiled they record the program itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import armature
from armature.errors import ReadsSource
from armature.pipeline.session import session

EXACT = {"rtol": 0, "atol": 0}
ONE, OTHER = torch.randn(2, 3), torch.randn(2, 3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu() + x.sin()


def function(x: Tensor) -> Tensor:
    return x.relu() * 2 + x.sin()


RECORD: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "jit.trace": lambda fn: torch.jit.trace(fn, ONE),
    "make_fx": lambda fn: make_fx(fn)(ONE),
}
RECORD_FUNCTION = RECORD | {
    "jit.script": torch.jit.script,
    "fx": torch.fx.symbolic_trace,
    "make_fx with symbols": lambda fn: make_fx(fn, tracing_mode="symbolic")(ONE),
}
RECORD_MODULE = RECORD | {
    "jit.trace_module": lambda net: torch.jit.trace_module(net, {"forward": ONE}),
    "export": lambda net: torch.export.export(net, (ONE,), strict=False).module(),
    "strict export": lambda net: torch.export.export(net, (ONE,), strict=True).module(),
    "draft export": lambda net: torch.export.draft_export(net, (ONE,)).module(),
}


@pytest.fixture(params=[True, False], ids=["strict", "lenient"], autouse=True)
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """A fallback would hide what goes wrong in strict mode, and strict mode what goes wrong after a fallback."""
    with armature.config.patch(strict=request.param), warnings.catch_warnings():
        warnings.filterwarnings("error", category=armature.ArmatureWarning)
        yield


@pytest.mark.parametrize("warm", [False, True], ids=["first", "compiled before"])
@pytest.mark.parametrize("tool", RECORD_FUNCTION)
def test_a_compiled_function_is_recorded_as_its_program(tool: str, warm: bool) -> None:
    compiled = armature.compile(function)
    if warm:
        compiled(ONE)
    recorded = RECORD_FUNCTION[tool](compiled)
    torch.testing.assert_close(recorded(OTHER), function(OTHER), **EXACT)
    assert names_in(recorded) >= {"relu", "sin"}


@pytest.mark.parametrize("warm", [False, True], ids=["first", "compiled before"])
@pytest.mark.parametrize("tool", RECORD_MODULE)
def test_a_compiled_module_is_recorded_as_its_program(tool: str, warm: bool) -> None:
    net = Net()
    compiled = armature.compile(net)
    if warm:
        compiled(ONE)
    recorded = RECORD_MODULE[tool](compiled)
    torch.testing.assert_close(recorded(OTHER), net(OTHER), **EXACT)
    assert names_in(recorded) >= {"relu", "sin"}


@pytest.mark.parametrize("tool", [*RECORD_MODULE, "fx"])
def test_a_module_with_a_compiled_part(tool: str) -> None:
    net = nn.Sequential(armature.compile(Net()), nn.Tanh())
    recorded = {**RECORD_MODULE, "fx": torch.fx.symbolic_trace}[tool](net)
    torch.testing.assert_close(recorded(OTHER), net(OTHER))
    assert type(net[0]).__name__ == "CompiledModule"


def names_in(recorded: Any) -> set[str]:
    """Operators in what was recorded."""
    if isinstance(recorded, torch.fx.GraphModule):
        return {
            str(getattr(n.target, "_opname", getattr(n.target, "__name__", n.target))) for n in recorded.graph.nodes
        }
    return {node.kind().removeprefix("aten::") for node in recorded.inlined_graph.nodes()}


@pytest.mark.parametrize("tool", ["fx", "jit.script"])
def test_tools_that_read_the_class_of_a_module_refuse_a_compiled_one(tool: str) -> None:
    record: Any = {"fx": torch.fx.symbolic_trace, "jit.script": torch.jit.script}[tool]
    net = Net()
    with pytest.raises(ReadsSource, match=r"A218.*(fx\.symbolic_trace|jit\.script) reads(.|\n)*__armature_original__"):
        record(armature.compile(net))
    torch.testing.assert_close(record(armature.compile(net).__armature_original__)(ONE), net(ONE))


def test_script_refuses_a_module_with_a_compiled_part_and_leaves_it_as_it_was() -> None:
    net = nn.Sequential(armature.compile(Net()), nn.Tanh())
    with pytest.raises(ReadsSource):
        torch.jit.script(net)
    assert type(net[0]).__name__ == "CompiledModule"


def traces(x: Tensor) -> Any:
    return torch.jit.trace(function, x)(x + 1) * 2


def traces_a_module(x: Tensor) -> Any:
    torch.manual_seed(0)
    return torch.jit.trace(Net(), x)(x + 1) * 2


def scripts(x: Tensor) -> Any:
    return torch.jit.script(function)(x + 1) * 2


def symbolic(x: Tensor) -> Any:
    return torch.fx.symbolic_trace(function)(x + 1) * 2


def made(x: Tensor) -> Any:
    return make_fx(function)(x)(x + 1) * 2


def exports(x: Tensor) -> Any:
    torch.manual_seed(0)
    return torch.export.export(Net(), (x,), strict=False).module()(x + 1) * 2


def onnx_graph(x: Tensor) -> Any:
    torch.manual_seed(0)
    return torch.jit._get_trace_graph(Net(), (x,))[1] * 2


@pytest.mark.parametrize("warm", [False, True], ids=["first", "compiled before"])
@pytest.mark.parametrize("fn", [traces, traces_a_module, scripts, symbolic, made, exports, onnx_graph])
def test_a_tool_at_work_inside_a_compiled_function(fn: Any, warm: bool) -> None:
    """What the tool runs is not compiled, and not found compiled either."""
    if warm:
        armature.compile(function)(ONE)
        armature.compile(Net())(ONE)
    known = len(session().compilations)
    quick = armature.compile(fn)
    for x in (ONE, OTHER):
        torch.testing.assert_close(quick(x), fn(x))
    assert not [c for c in list(session().compilations)[known:] if c.function.startswith(("function", "Net.forward"))]


def test_scripted_and_traced_modules_can_be_compiled() -> None:
    for net in (torch.jit.script(Net()), torch.jit.trace(Net(), ONE)):
        torch.testing.assert_close(armature.compile(net)(OTHER), net(OTHER))


def test_a_tool_begun_outside_records_a_call_of_a_compiled_function() -> None:
    quick = armature.compile(function)
    quick(ONE)
    traced = torch.jit.trace(lambda x: quick(x) * 3, ONE)
    torch.testing.assert_close(traced(OTHER), function(OTHER) * 3)


def test_torch_compile_of_a_compiled_function_or_module_has_one_graph() -> None:
    net = Net()
    for compiled in (armature.compile(function), armature.compile(net)):
        other = torch.compile(compiled, backend="eager", fullgraph=True)
        torch.testing.assert_close(other(OTHER), compiled(OTHER))
