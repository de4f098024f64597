"""Layouts with symbols, and the contract with torch: its operators read strides, also where they are symbols."""

from __future__ import annotations

import torch

from armature.torch_abi.fake import FakeWorld
from armature.torch_abi.symbols import Symbols, expression, has_own_strides
from armature.torch_abi.varying import Varying, layout_of, spans, unexplained
from armature.torch_abi.views import may_overlap_itself

BOTH = Varying(frozenset({0, 1}), frozenset({0, 1}))


def test_spans_of_axes() -> None:
    assert spans((4, 5, 6), (30, 6, 1)) == {2: None, 1: 2, 0: 1}
    assert spans((4, 5), (9, 1)) == {1: None, 0: None}
    assert spans((4, 5), (1, 4)) == {0: None, 1: 0}


def test_strides_that_no_size_explains() -> None:
    assert unexplained(torch.empty(3, 4)) == unexplained(torch.empty(4, 3).t()) == (None, None)
    assert unexplained(torch.empty(3, 9)[:, :4]) == (9, None)
    assert unexplained(torch.empty(3, 2, 9)[:, :, :4]) == (None, 9, None)
    assert unexplained(torch.empty(9)[:4].expand(3, 4)) == (None, None)


def test_a_stride_is_a_symbol_or_the_span_of_an_axis() -> None:
    symbols = Symbols()
    part = layout_of(symbols, torch.empty(3, 2, 9)[:, :, :4], Varying(frozenset({1}), frozenset({0, 1, 2})), "x")
    (rows,), (step,) = [part.sizes[1].node.expr.free_symbols], [part.strides[1].node.expr.free_symbols]
    assert part.strides[0].node.expr.free_symbols == rows | step and part.strides[2] == 1
    dense = layout_of(symbols, torch.empty(3, 4), BOTH, "y")
    assert expression(dense.strides[0]) == expression(dense.sizes[1])


def test_operators_that_read_strides_take_real_and_fake_tensors() -> None:
    read, real = torch.ops.aten.sym_stride.int, torch.empty(3, 9)[:, :4]
    assert read(real, 0) == 9 and read(real, 1) == 1
    fake = FakeWorld().of(real, Varying(strides=frozenset({0})), "x")
    assert isinstance(fake.stride(0), torch.SymInt) and fake.shape == (3, 4)
    assert expression(read(fake, 0)) == expression(fake.stride(0))


def test_tensors_with_strides_of_their_own_may_overlap_themselves() -> None:
    world, x, y = FakeWorld(), torch.empty(3, 9)[:, :4], torch.empty(3, 4)
    part, dense = world.of(x, Varying(strides=frozenset({0})), "x"), world.of(y, BOTH, "y")
    assert has_own_strides(part) and may_overlap_itself(part)
    assert not has_own_strides(dense) and not may_overlap_itself(dense)
    with world.mode:
        assert has_own_strides(part.t()) and not has_own_strides(part + 1)
