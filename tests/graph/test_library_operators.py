"""Operators of libraries whose derivative reads numbers of tensors: what stands around them is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import armature
from armature.pipeline.session import session


def grouped(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows up to each end times a matrix of their own."""
    made, start = rows.new_zeros(rows.size(0), weights.size(2)), 0
    for weight, end in zip(weights, ends.tolist(), strict=True):
        if start < end:
            made[start:end] = rows[start:end] @ weight
        start = end
    return made


def derivative(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
    """Its derivative, for which the ends have to be known."""
    rows, weights, ends = ctx.saved_tensors
    of_rows, of_weights, start = torch.zeros_like(rows), torch.zeros_like(weights), 0
    for k, end in enumerate(ends.tolist()):
        if start != end:
            of_rows[start:end] = gradient[start:end] @ weights[k].T
            of_weights[k] = rows[start:end].T @ gradient[start:end]
        start = end
    return of_rows, of_weights, None


@pytest.fixture(name="operator")
def registered() -> Iterator[Any]:
    """The operator, as a library registers one."""
    with torch.library._scoped_library("armature_tests", "FRAGMENT") as library:
        library.define("grouped(Tensor rows, Tensor weights, Tensor ends) -> Tensor")
        library.impl("grouped", grouped, "CPU")
        name = "armature_tests::grouped"
        torch.library.register_fake(name, lambda r, w, ends: r.new_empty(r.size(0), w.size(2)), lib=library)
        torch.library.register_autograd(
            name, derivative, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs), lib=library
        )
        yield torch.ops.armature_tests.grouped


@pytest.mark.filterwarnings("ignore:Error detected in")  # torch's own, of the try to have the derivative in the graph
@pytest.mark.parametrize("call", ["operator", "overload"])
def test_what_stands_around_is_compiled(operator: Any, call: str) -> None:
    used = operator.default if call == "overload" else operator

    def experts(rows, up, down, ends):
        hidden = used((rows * 2).sin(), up, ends).relu() + 1
        return used(hidden, down, ends).square()

    def inputs() -> list[torch.Tensor]:
        torch.manual_seed(0)
        shapes = ((8, 4), (3, 4, 5), (3, 5, 2))
        return [torch.randn(shape, requires_grad=True) for shape in shapes]

    armature.reset()
    mine, ends = armature.compile(experts, fullgraph=True), torch.tensor([2, 2, 8])
    for _ in range(2):
        given, wanted = inputs(), inputs()
        found, expected = mine(*given, ends), experts(*wanted, ends)
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close([t.grad for t in given], [t.grad for t in wanted])
    (record,) = session().compilations
    assert len(record.graphs) >= 3  # before, between and after: forward graphs at least


def test_in_inference_the_operator_is_part_of_the_graph(operator: Any) -> None:
    armature.reset()
    mine = armature.compile(lambda r, w, ends: operator(r * 2, w, ends).relu(), fullgraph=True)
    rows, weights, ends = torch.randn(8, 4), torch.randn(3, 4, 5), torch.tensor([2, 2, 8])
    torch.testing.assert_close(mine(rows, weights, ends), grouped(rows * 2, weights, ends).relu())
    (record,) = session().compilations
    assert len(record.graphs) == 1
