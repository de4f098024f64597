"""Convolutions in compilations that measure, through Triton's interpreter: what each way computes, which ways there
are, and the text of the template."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch.nn import functional

import armature
from armature.backend_api import KernelChoice
from armature.pipeline.session import session

Preferring = Callable[[str], AbstractContextManager[None]]
Tensor = torch.Tensor
CONVOLUTION, PRODUCT = "library, convolution", "library"
LAST = torch.channels_last


def compiled(fn: Callable[..., object], **options: object) -> Callable[..., Tensor]:
    found: Callable[..., Tensor] = armature.compile(fn, fullgraph=True, mode="max-autotune-no-cudagraphs", **options)
    return found


def choices() -> list[KernelChoice]:
    """Those among ways of computing a product."""
    every = [choice for source in session().kernel_sources() for choice in source.choices]
    return [c for c in every if any(t.label.startswith("library") for t in c.tried)]


def images(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    return torch.randn(*shape).to(dtype).to(memory_format=LAST)


def single(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.conv2d(x, w[:, :, :1, :1], b).relu()


def strided(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.conv2d(x, w[:, :, 1:2, 1:2], b, stride=2)


def window(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.conv2d(x, w, b)


def residual(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return (functional.conv2d(x, w, padding=1) * b[:, None, None] + x[:, :1]).relu()


def dilated(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.conv2d(x, w, b, stride=(2, 1), padding=(2, 1), dilation=(2, 1)).sigmoid()


def of_a_computed_image(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.conv2d(x.relu() * 2, w, b, padding=1)


def to_one_pixel(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.conv2d(x[:, :, :3, :3].contiguous(memory_format=LAST), w, b)


def one_after_another(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    first = functional.conv2d(x, w, padding=1)
    return functional.conv2d(first.relu(), w[:16].repeat(1, 2, 1, 1)[:, :40], padding=1) + b[:16, None, None]


PROGRAMS = (
    single, strided, window, residual, dilated, of_a_computed_image, to_one_pixel, one_after_another,
)  # fmt: skip
TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 2e-1}


@pytest.mark.parametrize("word", ["library", "x"])
@pytest.mark.parametrize(
    ("fn", "dtype"), [*((fn, torch.float16) for fn in PROGRAMS), (residual, torch.bfloat16), (strided, torch.bfloat16)]
)
def test_each_way_gives_what_eager_gives(
    fn: Callable[..., Tensor], dtype: torch.dtype, word: str, preferring: Preferring
) -> None:
    torch.manual_seed(0)
    x, w, b = images(2, 24, 9, 11, dtype=dtype), images(40, 24, 3, 3, dtype=dtype) / 10, torch.randn(40).to(dtype)
    with torch.no_grad(), preferring(word):
        expected = fn(x, w, b)
        found = compiled(fn)(x, w, b)
        torch.testing.assert_close(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        assert found.stride() == expected.stride()
        assert choices() and all(word in choice.chosen for choice in choices())
        assert session().totals().extern == 0


WAYS = {
    single: {CONVOLUTION, PRODUCT}, strided: {CONVOLUTION, PRODUCT}, window: {CONVOLUTION}, residual: {CONVOLUTION},
    dilated: {CONVOLUTION}, of_a_computed_image: {CONVOLUTION}, to_one_pixel: {CONVOLUTION},
}  # fmt: skip


@pytest.mark.parametrize("fn", WAYS)
def test_the_library_has_a_call_for_it(fn: Callable[..., Tensor], preferring: Preferring) -> None:
    """A matrix product for single pixels that are next to each other, a convolution for all others."""
    with torch.no_grad(), preferring("x"):
        compiled(fn)(images(2, 24, 9, 11), images(40, 24, 3, 3), torch.randn(40).half())
        (choice,) = choices()
    assert {t.label for t in choice.tried if t.label.startswith("library")} == WAYS[fn]
    assert len(choice.tried) > len(WAYS[fn])


@pytest.mark.parametrize("word", ["library", "x"])
def test_a_number_of_images_that_changes(word: str, preferring: Preferring) -> None:
    w, b = images(32, 16, 3, 3) / 10, torch.randn(32).half()
    with torch.no_grad(), preferring(word):
        quick = compiled(lambda x: functional.conv2d(x, w, b, padding=1).relu())
        for count in (4, 2, 7, 1):
            x = images(count, 16, 6, 6)
            torch.testing.assert_close(quick(x), functional.conv2d(x, w, b, padding=1).relu(), rtol=1e-2, atol=1e-2)
        assert all(word in choice.chosen for choice in choices())


@pytest.mark.parametrize("layout", [LAST, torch.contiguous_format])
@pytest.mark.parametrize("channels", [3, 24])
def test_what_is_no_product_stays_a_call(channels: int, layout: torch.memory_format, preferring: Preferring) -> None:
    """Few channels, for which a matrix unit is mostly empty, groups, transposed ones, images by rows, and float32."""
    x, w = torch.randn(2, channels, 9, 9).half().to(memory_format=layout), torch.randn(36, channels, 3, 3)
    grouped, turned = torch.randn(36, channels // 3, 3, 3).half(), torch.randn(channels, 8, 3, 3).half()

    def program(x: Tensor) -> tuple[Tensor, ...]:
        wide = (
            functional.conv2d(x, w.half()) if channels < 16 or layout is not LAST else functional.conv2d(x.float(), w)
        )
        return wide, functional.conv2d(x, grouped, groups=3), functional.conv_transpose2d(x, turned)

    with torch.no_grad(), preferring("x"), armature.config.patch(disabled_passes=("channels-last",)):
        for found, wanted in zip(compiled(program)(x), program(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-1)
        assert not choices()


PARTS = (
    lambda x: x[:, :, 1:-1, 2:], lambda x: x[:, 4:], lambda x: x[1:], lambda x: x.flip(2)[:, :, :-1],
    lambda x: x.permute(0, 2, 3, 1).reshape(2, -1, 24).transpose(1, 2).unflatten(2, (11, 9)),
)  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_images(part: Callable[[Tensor], Tensor], preferring: Preferring) -> None:
    """What is not stored as a whole image has a call of the library too, or is left to it alone."""
    x, w = images(2, 24, 9, 11), images(40, 24, 3, 3)
    w = w[:, : part(x).shape[1]].contiguous(memory_format=LAST)

    def program(x: Tensor, w: Tensor) -> Tensor:
        return functional.conv2d(part(x), w, padding=1).relu()

    with torch.no_grad(), preferring("library"):
        torch.testing.assert_close(compiled(program)(x, w), program(x, w), rtol=1e-2, atol=1e-2)
        assert all(choice.chosen == CONVOLUTION for choice in choices())
        assert len(choices()) + session().totals().extern == 1


def test_training(preferring: Preferring) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.GELU(), torch.nn.Conv2d(32, 16, 1))
    model.to(torch.bfloat16).to(memory_format=LAST)
    x = images(2, 16, 7, 7, dtype=torch.bfloat16)
    found = []
    with preferring("x"):
        for run in (compiled(model), model):
            model.zero_grad()
            run(x).float().square().mean().backward()
            found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        assert choices()
    torch.testing.assert_close(*found, rtol=2e-2, atol=2e-2)


def test_the_default_mode_leaves_convolutions_to_the_library(preferring: Preferring) -> None:
    x, w = images(2, 24, 9, 11), images(40, 24, 3, 3)
    with torch.no_grad(), preferring("x"):
        armature.compile(lambda x: functional.conv2d(x, w).relu(), fullgraph=True)(x)
        assert session().totals().extern == 1 and not choices()


TEXT = """
    inner_blocks = ((32 + BLOCK_K - 1) // BLOCK_K)
    for step in range(0, 9 * inner_blocks):
        tap = step // inner_blocks
        k = step % inner_blocks * BLOCK_K + tl.arange(0, BLOCK_K)
        k_of_left, k_of_right = k[None, :], k[:, None]
        a0 = (((m // 8) % 8) + (tap // 3) - 1).to(tl.int64)
        a1 = a0 >= 0
        a2 = a0 < 8
        a3 = a1 & a2
        a4 = ((m % 8) + (tap % 3) - 1).to(tl.int64)
        a5 = a4 >= 0
        a6 = a3 & a5
        a7 = a4 < 8
        a8 = a6 & a7
        a10 = tl.load(in0 + (32 * (tap % 3) + 256 * (tap // 3) + k_of_left + 32 * m - 288), a8, 0)
        b0 = tl.load(in1 + (k_of_right + 288 * n + 32 * tap))
        red0 = helpers.dot(a10, b0, red0, "ieee")
"""
CALL = """
        torch.ops.aten.convolution.out(
            in0.as_strided([2, 32, 8, 8], [2048, 1, 256, 32]),
            in1.as_strided([64, 32, 3, 3], [288, 1, 96, 32]),
            None,
            [1, 1],
            [1, 1],
            [1, 1],
            False,
            [0, 0],
            1,
            out=out0.as_strided([2, 64, 8, 8], [4096, 1, 512, 64]),
        )
"""


def test_the_text_of_the_template(preferring: Preferring) -> None:
    x, w = images(2, 32, 8, 8), images(64, 32, 3, 3)
    with torch.no_grad(), preferring("x"):
        compiled(lambda x, w: functional.conv2d(x, w, padding=1).relu())(x, w)
        (source,) = session().kernel_sources()
    text = "\n".join(line.partition("  # test_")[0].rstrip() for line in source.text.splitlines())
    assert TEXT.strip("\n") in text, source.text
    assert CALL.strip("\n") in text, source.text
