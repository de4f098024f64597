"""Rows of short runs of memory, as the groups of a group norm over channels-last images are."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import armature
from armature.pipeline.session import session

pytestmark = pytest.mark.usefixtures("interpreted")


def image(channels: int = 24) -> torch.Tensor:
    return torch.randn(2, channels, 32, 36).to(memory_format=torch.channels_last)


def normed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A group norm written out: the back end for CPUs gets other loops for the operator."""
    total = x + y
    groups = total.unflatten(1, (4, -1))
    gaps = groups - groups.mean((2, 3, 4), keepdim=True)
    scaled = gaps * torch.rsqrt(gaps.square().mean((2, 3, 4), keepdim=True) + 1e-5)
    return total, functional.silu(scaled.flatten(1, 2))


def functions_of(text: str) -> list[str]:
    return text.split("@triton.jit")[1:]


@pytest.mark.parametrize("channels", [12, 24, 256], ids=["runs of 3", "runs of 6", "long runs"])
def test_group_norm_of_channels_last_images(channels: int) -> None:
    x, y = image(channels), image(channels)
    found, expected = armature.compile(normed, fullgraph=True)(x, y), normed(x, y)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert [f.stride() for f in found] == [e.stride() for e in expected]


def test_neighbours_load_neighbours() -> None:
    armature.compile(normed, fullgraph=True)(image(), image())
    (source,) = session().kernel_sources()
    _, sums, joined, squares, _, last = functions_of(source.text)
    for part in (sums, squares):
        assert (
            "for r_start in range(0, " in part and "tl.load(in0 + ((x % 24) + 6912 * (x // 24) + 24 * r), r_in" in part
        )
    assert "tl.load(in0 + ((r % 6) + 48 * (r // 6) + 6 * x), r_in)" in joined
    assert "tl.load(in0 + x)" in last and "tl.store(out0 + x, " in last


def test_long_runs_are_reduced_as_they_are() -> None:
    armature.compile(normed, fullgraph=True)(image(256), image(256))
    (source,) = session().kernel_sources()
    assert "(r % 64)" in source.text


def test_short_runs_are_turned_in_squares() -> None:
    """As the weight of a convolution is laid out anew for channels-last images, and a group norm's result for others."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).contiguous()

    weight = torch.randn(6, 70, 3, 3)
    torch.testing.assert_close(armature.compile(turned, fullgraph=True)(weight), turned(weight))
    (source,) = session().kernel_sources()
    assert "[:, None]" in source.text and "[None, :]" in source.text


def test_neighbouring_runs_share_a_square() -> None:
    def scaled(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return (x.unflatten(1, (4, -1)) * by[:, None, None, None]).flatten(1, 2).contiguous()

    x, by = image(channels=40), torch.randn(4)
    torch.testing.assert_close(armature.compile(scaled, fullgraph=True)(x, by), scaled(x, by))
    (source,) = session().kernel_sources()
    assert "tl.load(in0 + ((x % 40) + 46080 * (x // 40) + 40 * r))" in source.text
    assert "tl.store(out0 + (r + 1152 * x), " in source.text
