"""The windows of a pooling operator: an element's position in its window, and in the image."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

MOST_POSITIONS = 128  # most elements of a window that int8 can number
MOST_COMPARED = 9  # most elements of a window that are unrolled, because larger windows read each number too often
MOST_NUMBERED = 25  # the same if the library's kernel would have to search for positions, which is slower still


class Window:
    """The windows of a pooling operator over images of one size."""

    def __init__(self, image: Tensor, kernel: object, stride: object, padding: object, dilation: object) -> None:
        self.width = image.shape[-1]
        self.kernel, self.stride, self.padding, self.dilation = map(pair, (kernel, stride, padding, dilation))

    @property
    def can_pack(self) -> bool:
        """Whether a byte can number every element of a window, and the rows of a window don't overlap in the image."""
        row = (self.kernel[1] - 1) * self.dilation[1]
        return math.prod(self.kernel) <= MOST_POSITIONS and row < self.dilation[0] * self.width

    @property
    def is_small(self) -> bool:
        """Whether its elements may be unrolled."""
        return math.prod(self.kernel) <= MOST_NUMBERED

    @property
    def has_few_holders(self) -> bool:
        """Whether so few windows contain one element that they may be unrolled."""
        return self.is_small and math.prod(map(len, self.holders)) <= MOST_COMPARED

    @property
    def holders(self) -> tuple[range, ...]:
        """Along each axis, the windows that may hold an element, counted back from the last one."""
        spans = (1 + begin for begin in self.begins_of_last)
        return tuple(range(-(-span // stride)) for span, stride in zip(spans, self.stride, strict=True))

    def starts(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Row and column in the image where each window begins."""
        rows, columns = (torch.arange(n, device=places.device) for n in places.shape[-2:])
        return (
            (rows * self.stride[0] - self.padding[0]).unsqueeze(1),
            columns * self.stride[1] - self.padding[1],
        )

    def packed(self, places: Tensor) -> Tensor:
        """int8: the element of its window for each position."""
        row, column = self.starts(places)
        past = places - (row * self.width + column)
        down = small_quotient(past, self.dilation[0] * self.width, self.kernel[0])
        across = small_quotient(past - down * (self.dilation[0] * self.width), self.dilation[1], self.kernel[1])
        return (down * self.kernel[1] + across).to(torch.int8)

    def unpacked(self, packed: Tensor) -> Tensor:
        """int64: positions in the image."""
        row, column = self.starts(packed)
        element = packed.to(torch.int64)
        down = small_quotient(element, self.kernel[1], self.kernel[0])
        across = element - down * self.kernel[1]
        return (row + down * self.dilation[0]) * self.width + column + across * self.dilation[1]

    def largest(self, image: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The maximum of each window, and its element number (int8): as in eager mode, the first of equal ones inside
        the image, and the last NaN. size: rows and columns of windows."""
        last = [begin + (n - 1) * step for n, step, begin in zip(size, self.stride, self.begins_of_last, strict=True)]
        missing = [max(end + 1 - n - pad, 0) for end, n, pad in zip(last, image.shape[-2:], self.padding, strict=True)]
        pads = (self.padding[1], missing[1], self.padding[0], missing[0])
        padded = functional.pad(image, pads, value=-math.inf) if any(pads) else image
        best = self.read(padded, 0, 0, size)
        element = self.first_inside(image, size).expand(best.shape)
        for number, (down, across) in enumerate(itertools.product(*map(range, self.kernel))):
            value = self.read(padded, down, across, size)
            better = (value > best) | (value != value)
            best = torch.where(better, value, best)
            element = torch.where(better, number, element)
        return best, element.to(torch.int8)

    def gradient(self, grad: Tensor, packed: Tensor, size: Sequence[int]) -> Tensor:
        """The gradient of an image of that size with channels last, from that of the maxima and the elements of their
        windows: each element of the image adds up the gradients of the windows whose maximum it is."""
        total = grad.new_zeros(())
        for steps in itertools.product(*self.holders):
            (rows, down), (columns, across) = (
                self.holder(axis, size[axis], packed, step) for axis, step in enumerate(steps)
            )
            rows, down = rows.unsqueeze(1), down.unsqueeze(1)
            number = torch.where((down >= 0) & (across >= 0), down * self.kernel[1] + across, -1).to(torch.int8)
            chosen = packed[..., rows, columns] == number
            total = total + torch.where(chosen, grad[..., rows, columns], 0)
        return total.contiguous(memory_format=torch.channels_last)

    def holder(self, axis: int, size: int, packed: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """For each coordinate of an image along an axis: the window that is `step` before the last one that may contain
        it, and the number of the element in that window, -1 if it is not in it."""
        stride, dilation, count = self.stride[axis], self.dilation[axis], packed.shape[axis - 2]
        past = torch.arange(size, device=packed.device) + self.padding[axis]
        window = past // stride - step
        offset = past - window * stride
        held = (window >= 0) & (window < count) & (offset % dilation == 0) & (offset < self.kernel[axis] * dilation)
        return window.clamp(0, count - 1), torch.where(held, offset // dilation, -1)

    @property
    def begins_of_last(self) -> tuple[int, ...]:
        """The offset of a window's last element from its first, along each axis."""
        return tuple((count - 1) * step for count, step in zip(self.kernel, self.dilation, strict=True))

    def read(self, padded: Tensor, down: int, across: int, size: Sequence[int]) -> Tensor:
        """One element of all windows."""
        rows, columns = (
            slice(number * step, number * step + (n - 1) * stride + 1, stride)
            for number, step, n, stride in zip((down, across), self.dilation, size, self.stride, strict=True)
        )
        return padded[..., rows, columns]

    def first_inside(self, image: Tensor, size: Sequence[int]) -> Tensor:
        """int32: the first element of each window that is inside the image."""
        rows, columns = (
            small_quotient(
                (pad - torch.arange(n, device=image.device, dtype=torch.int32) * stride).clamp(min=0) + step - 1,
                step,
                count,
            )
            for n, stride, pad, step, count in zip(
                size, self.stride, self.padding, self.dilation, self.kernel, strict=True
            )
        )
        return rows.unsqueeze(1) * self.kernel[1] + columns


def small_quotient(value: Tensor, size: int, limit: int) -> Tensor:
    """`value // size` of non-negative numbers whose quotient is below `limit`, by a few comparisons, because processors
    have no vector division of int64."""
    if size == 1:
        return value
    return sum(((value >= size * number).to(value.dtype) for number in range(1, limit)), torch.zeros_like(value))


def pair(values: object) -> tuple[int, int]:
    """A number for both axes, or one for each."""
    several = values if isinstance(values, (list, tuple)) else (values,)
    return several[0], several[-1]
