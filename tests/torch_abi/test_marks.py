from __future__ import annotations

import functools
import importlib

import pytest
import torch

import armature
from armature.torch_abi.marks import (
    ORIGINAL,
    allowed_in_graph,
    assumed_constant,
    call_without_fakes,
    is_of_torch_compile,
    unpatched,
    why_disabled,
)
from tests.support.tracing import break_of

CALLS: list[int] = []


@functools.lru_cache
@torch.compiler.assume_constant_result
def capability(level: int) -> bool:
    CALLS.append(level)
    return eval("level > 1")


def test_the_mark_of_assume_constant_result() -> None:
    assert assumed_constant(capability.__wrapped__)
    assert not assumed_constant(test_the_mark_of_assume_constant_result)


def test_a_marked_function_is_called_once() -> None:
    compiled = armature.compile(lambda x: x + 1 if capability(2) else x, backend="eager", fullgraph=True)
    x = torch.ones(2)
    torch.testing.assert_close(compiled(x), x + 1)
    compiled(x)
    assert CALLS == [2]


@torch.compiler.allow_in_graph
def by_name(pattern: str, x: torch.Tensor, sizes: tuple[int, ...] = (), **scales: float) -> torch.Tensor:
    operations = [getattr(torch, eval(repr(name))) for name in pattern.split()]
    for operation in operations:
        x = operation(x)
    return x.reshape(sizes or x.shape) * sum(scales.values(), 1.0)


@torch._dynamo.nonstrict_trace
def traced_loosely(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_the_mark_of_allow_in_graph() -> None:
    assert allowed_in_graph(by_name)
    assert not allowed_in_graph(traced_loosely)
    assert not allowed_in_graph(test_the_mark_of_allow_in_graph)
    assert not allowed_in_graph(torch.sin)


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_a_function_allowed_in_the_graph_is_one_node(backend: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return by_name("sin cos", x * 2, (3, 2), half=0.5) + 1

    compiled = armature.compile(program, backend=backend, fullgraph=True)
    x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
    found, expected = compiled(x), program(x)
    torch.testing.assert_close(found, expected)
    grads = (torch.autograd.grad(result.sum(), x)[0] for result in (found, expected))
    torch.testing.assert_close(*grads)


def test_the_patch_of_torch_compile() -> None:
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    original = unpatched(torch.nn.Module.__init__)
    assert original is not None
    assert original.__qualname__ == "Module.__init__"
    assert unpatched(test_the_patch_of_torch_compile) is None
    assert unpatched(len) is unpatched(bytearray.append) is None  # __module__ is None
    makes_state = unpatched(torch.optim.Adam._init_group)
    assert makes_state is not None
    assert makes_state.__code__.co_filename.endswith("adam.py")


def test_the_marks_of_what_torch_compile_returned() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled = torch.compile(double, backend="eager")
    assert is_of_torch_compile(compiled)
    assert getattr(compiled, ORIGINAL) is double
    wrapper = functools.wraps(compiled)(lambda x: compiled(x))
    others = (double, wrapper, torch.compiler.disable(double), torch.compile(torch.nn.Identity(), backend="eager"), len)
    assert not any(map(is_of_torch_compile, others))


@pytest.mark.parametrize("fused", [False, True])
def test_optimizers_trace_though_torch_compile_wraps_them(fused: bool) -> None:
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    weight = torch.ones(2, requires_grad=True)
    weight.sum().backward()
    optimizer = torch.optim.SGD([weight], lr=0.5, fused=fused)
    armature.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)()
    torch.testing.assert_close(weight.detach(), torch.full((2,), 0.5))


def test_tensors_made_for_real() -> None:
    with torch._subclasses.FakeTensorMode():
        assert type(call_without_fakes(torch.ones, [2], {})) is torch.Tensor


def test_seeding_is_told_as_what_it_is() -> None:
    """torch.compile, once it is imported, puts a wrapper of its own machinery in the place of `torch.manual_seed`."""
    importlib.import_module("torch._dynamo")
    assert unpatched(torch.manual_seed) is torch.random.manual_seed
    assert unpatched(torch.random.manual_seed) is None

    def seeds(x):
        torch.manual_seed(3)
        return x + torch.rand(2)

    x = torch.ones(2)
    assert torch.equal(armature.compile(seeds, fullgraph=True)(x), seeds(x))


@torch.compiler.disable(reason="it asks a server")
def left_out(x: torch.Tensor) -> torch.Tensor:
    return x.exp()


def test_the_mark_of_disable() -> None:
    assert why_disabled(left_out) == "it asks a server"
    assert "torch.compiler.disable" in why_disabled(torch.compiler.disable(lambda x: x))
    assert "torch" in why_disabled(torch.optim.SGD.zero_grad)
    assert why_disabled(functools.wraps(left_out)(lambda x: x)) == ""
    assert why_disabled(test_the_mark_of_disable) == why_disabled(torch.relu) == why_disabled(len) == ""


@torch.compiler.disable(recursive=False, reason="it has side effects")
def frame_left_out(x: torch.Tensor) -> torch.Tensor:
    return x.exp()


def test_a_function_whose_frame_alone_is_disabled_breaks_the_graph_too() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return frame_left_out(x * 2) + 1

    (event,) = armature.explain(program)(torch.ones(2)).breaks
    assert event.type.id == "disabled-function" and event.facts["reason"] == "it has side effects"
    x = torch.ones(2)
    assert torch.equal(armature.compile(program, backend="eager")(x), program(x))


def test_a_disabled_function_breaks_the_graph_and_says_that_it_is_disabled() -> None:
    (event,) = armature.explain(lambda x: left_out(x * 2) + 1)(torch.ones(2)).breaks
    assert event.type.id == "disabled-function" and event.facts["reason"] == "it asks a server"
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)])
    (event,) = armature.explain(lambda x: (optimizer.zero_grad(), x + 1)[1])(torch.ones(2)).breaks
    assert event.type.id == "disabled-function" and "of its own" in str(event.facts["reason"])


def test_what_records_is_told_as_what_it_is() -> None:
    """torch.compile, once it is imported, disables `torch.jit.trace` and the like for itself."""
    importlib.import_module("torch._dynamo")
    for recorder in (torch.jit.trace, torch.jit.trace_module, torch.fx.Tracer.trace):
        original = unpatched(recorder)
        assert original is not None and original.__name__ == recorder.__name__ and unpatched(original) is None
    assert unpatched(torch.compiler.disable(torch.nn.functional.gelu)) is None

    def records(x):
        return torch.jit.trace(lambda y: y + 1, (x,))(x)

    assert break_of(records, torch.ones(2)) == "another-compiler"
