"""The seam to oneDNN's convolutions."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from armature.torch_abi import onednn

pytestmark = pytest.mark.skipif(not onednn.is_there(), reason="torch was built without oneDNN")
aten = torch.ops.aten


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("activation", [("none", []), ("relu", []), ("hardtanh", [0.0, 6.0])], ids=lambda a: a[0])
@torch.no_grad()
def test_a_packed_weight_gives_the_same_convolution(groups: int, activation: tuple[str, list[float]]) -> None:
    image = torch.randn(2, 8, 9, 9).contiguous(memory_format=torch.channels_last)
    weight, bias = torch.randn(16, 8 // groups, 3, 3), torch.randn(16)
    plain = aten.convolution.default(image, weight, bias, [2, 2], [1, 1], [1, 1], False, [0, 0], groups)
    expected = {"none": plain, "relu": plain.relu(), "hardtanh": plain.clamp(0, 6)}[activation[0]]
    packed = onednn.PACKED_WEIGHT(weight, [1, 1], [2, 2], [1, 1], groups, list(image.shape))
    run = onednn.fused_convolution()
    found = run(image, packed, bias, [1, 1], [2, 2], [1, 1], groups, *activation, "")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_both_are_known_for_tensors_without_numbers() -> None:
    with FakeTensorMode():
        image, weight = torch.randn(2, 8, 9, 9), torch.randn(16, 8, 3, 3)
        packed = onednn.PACKED_WEIGHT(weight, [1, 1], [1, 1], [1, 1], 1, [2, 8, 9, 9])
        found = onednn.fused_convolution()(image, packed, None, [1, 1], [1, 1], [1, 1], 1, "relu", [], "")
    assert packed.shape == weight.shape and found.shape == (2, 16, 9, 9)
