"""What a plugin's lowering gets wrong: an error that says whose it is in strict mode, else an ATen call with a warning."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.errors import ArmatureWarning, PluginLoweringFailed
from armature.lower.data import ExternCall
from armature.lower.elements import Elements
from armature.lower.values import Spec, TensorValue
from armature.pipeline.session import session
from armature.plugin_api import Lowering, hookimpl
from armature.plugins import manager
from armature.testing.lowering_kit import Kit, context

OP = torch.ops.aten.erfinv.default
Given = Callable[[Any, TensorValue], object]


def raises(b: Any, x: TensorValue) -> object:
    raise KeyError("boom")


WRONG: dict[str, tuple[Given, str]] = {
    "raises": (raises, "KeyError: 'boom'"),
    "another dtype": (
        lambda b, x: b.pointwise(lambda v: b.op("lt", v, 0.0), x, spec=Spec(x.shape, torch.bool, x.device, (4, 1))),
        "torch.bool",
    ),
    "another shape": (lambda b, x: b.whole(b.new_buffer(Spec((2,), x.dtype, x.device, (1,)))), "[2]"),
    "no tensor": (lambda b, x: 42, "int, no tensor"),
    "two results": (lambda b, x: (x, x), "2 results, not 1"),
    "a text as a value": (lambda b, x: b.pointwise(lambda v: b.op("add", v, "1"), x), "'1' as an argument of add"),
    "no such operation": (lambda b, x: b.pointwise(lambda v: b.op("erfinvv", v), x), "erfinvv"),
}


def program(x: Tensor) -> Tensor:
    return torch.erfinv(x.cos() * 0.5).exp()


@pytest.fixture(params=WRONG)
def told(request: pytest.FixtureRequest) -> Iterator[str]:
    """A plugin whose lowering is wrong, and what is told of it."""
    fn, problem = WRONG[request.param]

    class Mine:
        @hookimpl
        def armature_lowerings(self) -> list[Lowering]:
            return [Lowering(OP, fn, priority=1)]

    armature.reset()
    with manager().registered(Mine(), "mine"):
        yield problem
    armature.reset()


def test_strict_mode_names_plugin_operator_and_line(told: str) -> None:
    line = program.__code__.co_firstlineno + 1
    with pytest.raises(PluginLoweringFailed) as failed:
        armature.compile(program)(torch.rand(3, 4))
    text = str(failed.value)
    assert f"{__file__}:{line}: " in text and "aten.erfinv.default of plugin mine failed" in text and told in text


def test_otherwise_the_operator_stays_a_call(told: str) -> None:
    x = torch.rand(3, 4)
    with armature.config.patch(strict=False), pytest.warns(ArmatureWarning, match="aten.erfinv.default .* plugin mine"):
        found = armature.compile(program)(x)
    torch.testing.assert_close(found, program(x))
    [graph] = session().compilations[-1].graphs
    [call] = [step for step in graph.plan.steps if isinstance(step, ExternCall)]
    assert call.target is OP and call.reason.kind == "failed" and told in call.reason.detail
    assert len(graph.plan.launches) == 2  # cosine and factor; exponential


def example_of_the_guide() -> Any:
    """The lowering that docs/plugins.md shows."""
    text = (Path(__file__).parents[2] / "docs/plugins.md").read_text()
    [block] = [part for part in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "@lowers" in part]
    found: dict[str, Any] = {}
    exec(block, found)
    return found["hardtanh"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_number_is_a_value_of_the_dtype_beside_it(dtype: torch.dtype) -> None:
    aten = torch.ops.aten
    x = torch.linspace(-3, 3, 20).to(dtype)
    kit = Kit((Lowering(aten.hardtanh.default, example_of_the_guide()),))
    kit.check(aten.hardtanh.default, x, -2, 1)


def test_a_fraction_is_no_value_beside_integers() -> None:
    with pytest.raises(TypeError, match=r"0\.5 as an argument of minimum, beside torch\.int64"):
        elements = Elements(context(()))
        elements.op("minimum", elements.const(3, torch.int64), 0.5)
