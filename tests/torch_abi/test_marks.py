from __future__ import annotations

import functools

import torch

import armature
from armature.torch_abi.marks import assumed_constant, call_for_real

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


def test_tensors_made_for_real() -> None:
    with torch._subclasses.FakeTensorMode():
        assert type(call_for_real(torch.ones, [2], {})) is torch.Tensor
