"""What is fused with a product of matrices that is a loop."""

from __future__ import annotations

from armature.schedule.data import Kernel
from armature.schedule.walk import postorder
from tests.schedule.test_fusion import planned
from tests.support.loop_graphs import LoopWriter


def has_product(kernel: Kernel) -> bool:
    return any(getattr(node, "op", "") == "product" for node in postorder(kernel.roots))


def test_what_follows_each_element_is_part_of_the_kernel() -> None:
    w = LoopWriter()
    x, weight, bias, residual = w.input(6, 8), w.input(8, 10), w.input(10), w.input(6, 10)
    out = w.op("add", w.op("tanh", w.op("add", w.product(x, weight), bias)), residual)
    (kernel,) = planned(w, w.graph(out)).kernels
    (step,) = kernel.passes
    assert len(step.reductions) == 1 and not step.inner_stores and kernel.operators == 4


def test_a_cheap_factor_is_computed_inside() -> None:
    w = LoopWriter()
    x, weight = w.input(6, 8), w.input(8, 10)
    assert len(planned(w, w.graph(w.product(w.op("mul", x, 2.0), weight))).kernels) == 1


def test_a_factor_of_two_products_is_computed_once() -> None:
    w = LoopWriter()
    x, left, right = w.input(6, 8), w.input(8, 10), w.input(8, 12)
    scaled = w.op("mul", x, 2.0)
    kernels = planned(w, w.graph(w.product(scaled, left), w.product(scaled, right))).kernels
    assert [has_product(kernel) for kernel in kernels] == [False, True, True]


def test_two_products_are_two_kernels() -> None:
    w = LoopWriter()
    x, left, right = w.input(6, 8), w.input(8, 10), w.input(8, 10)
    gated = w.op("mul", w.op("sigmoid", w.product(x, left)), w.product(x, right))
    kernels = planned(w, w.graph(gated)).kernels
    assert [has_product(kernel) for kernel in kernels] == [True, True] and sum(k.operators for k in kernels) == 4


def test_reductions_before_and_after_are_kernels_of_their_own() -> None:
    w = LoopWriter()
    x, weight = w.input(6, 8), w.input(8, 8)
    normal = w.op("div", x, w.reduce("sum", x, [1], keepdim=True))
    found = w.product(normal, weight)
    sums = w.op("sub", found, w.reduce("max", found, [1], keepdim=True))
    for kernel in planned(w, w.graph(sums)).kernels:
        if has_product(kernel):
            assert len(kernel.passes) == 1 and len(kernel.passes[0].reductions) == 1


def test_a_reader_over_more_points_is_not_part_of_it() -> None:
    """Its third axis is as long as the product's inner loop, and would run inside of it."""
    w = LoopWriter()
    x, weight, more = w.input(6, 8), w.input(8, 10), w.input(8, 6, 10)
    kernels = planned(w, w.graph(w.op("add", w.product(x, weight), more))).kernels
    assert [has_product(kernel) for kernel in kernels] == [True, False]
