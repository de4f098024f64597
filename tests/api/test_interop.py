"""armature as a backend of torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import armature
from armature.pipeline.session import session


def test_torch_compile_finds_the_backend_by_name() -> None:
    def f(x: Any, y: Any) -> Any:
        return torch.relu(x @ y).sum(0), x + 1

    x, y = torch.randn(4, 3), torch.randn(3, 5)
    compiled = torch.compile(f, backend="armature", fullgraph=True)
    torch.testing.assert_close(compiled(x, y), f(x, y))
    assert session().compilations[-1].graphs


def test_training_through_torch_compile() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    x = torch.randn(3, 4)
    net(x).square().sum().backward()
    expected = [p.grad for p in net.parameters()]
    net.zero_grad(set_to_none=True)
    torch.compile(net, backend="armature")(x).square().sum().backward()
    for ours, theirs in zip((p.grad for p in net.parameters()), expected):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def scale(x: Any, by: int) -> Any:
    return x * by + 1


def test_both_compilers_may_compile_the_same_function() -> None:
    x = torch.ones(3)
    ours = armature.compile(scale, backend="eager", dynamic=False)
    theirs = torch.compile(scale, backend="eager", dynamic=False)
    for by in range(4):
        assert torch.equal(ours(x, by), x * by + 1)
        assert torch.equal(theirs(x, by), x * by + 1)
    assert torch.equal(ours(x, 0), torch.ones(3))
    assert len(session().compilations) == 4


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"mode": "fastest"}, "A212"), ({"options": {"fuze": True}}, "A213")],
)
def test_arguments_that_mean_nothing_here_are_refused(arguments: dict[str, Any], text: str) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="armature", **arguments)
    with pytest.raises(Exception, match=text):
        compiled(torch.ones(3))


def test_options_are_settings_of_armature() -> None:
    x = torch.ones(64)
    for options, kernels in (({"fuse": True}, 1), ({"fuse": False}, 2)):
        compiled = torch.compile(lambda x: (x.sin() * 2).sum(), backend="armature", mode=None, options=options)
        torch.testing.assert_close(compiled(x), (x.sin() * 2).sum())
        assert (session().totals().kernels > 1) == (kernels > 1)
        armature.reset()


def test_nested_tensors_run_operator_by_operator() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    compiled = torch.compile(function, backend="armature")
    for lengths in ((2, 3), (4, 1, 2), (3, 3)):
        x = torch.nested.nested_tensor([torch.randn(length, 4) for length in lengths], layout=torch.jagged)
        torch.testing.assert_close(compiled(x).values(), function(x).values())
