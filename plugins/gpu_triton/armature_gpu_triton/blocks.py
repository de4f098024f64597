"""Which tile sizes of a product of matrices are worth measuring: a few, from its sizes and the device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

MOST_MEASURED = 5
ROWS_OF_SQUARE = 8
SMALLEST = 16  # side of a block: that of a matrix unit's operand


@attrs.frozen
class Device:
    """What is known of a device before anything runs on it. shared: bytes of shared memory of a program."""

    name: str = "unknown"
    capability: int = 80
    multiprocessors: int = 108
    shared: int = 99 << 10


@attrs.frozen
class Blocks:
    """Tile sizes of a product, and the resources of a program."""

    m: int
    n: int
    k: int
    num_warps: int
    num_stages: int

    @property
    def label(self) -> str:
        """The text for reports: `128x128x64, 8 warps, 3 stages`."""
        return f"{self.m}x{self.n}x{self.k}, {self.num_warps} warps, {self.num_stages} stages"

    @property
    def constants(self) -> tuple[tuple[str, int], ...]:
        """Values of the kernel's compile-time parameters."""
        return (("BLOCK_M", self.m), ("BLOCK_N", self.n), ("BLOCK_K", self.k), ("GROUP", ROWS_OF_SQUARE))


@attrs.frozen
class Sizes:
    """A product's sizes, with hints for symbolic ones. bytes: of an element of its factors, the wider one."""

    batch: int
    m: int
    n: int
    k: int
    bytes: int


# The sizes that other compilers' tables and papers name as fastest for some shape, large ones for large matrices.
CHOICES: tuple[Blocks, ...] = (
    Blocks(128, 256, 64, 8, 3),
    Blocks(256, 128, 64, 8, 3),
    Blocks(128, 128, 64, 8, 3),
    Blocks(128, 128, 32, 4, 4),
    Blocks(64, 256, 32, 4, 4),
    Blocks(128, 64, 64, 4, 4),
    Blocks(64, 128, 64, 4, 4),
    Blocks(64, 64, 64, 4, 4),
    Blocks(32, 128, 64, 4, 4),
    Blocks(64, 32, 64, 4, 4),
    Blocks(32, 64, 128, 4, 4),
    Blocks(32, 32, 64, 2, 4),
    Blocks(16, 128, 128, 4, 4),
    Blocks(16, 64, 128, 4, 4),
    Blocks(64, 16, 128, 4, 4),
    Blocks(16, 32, 128, 2, 4),
)


def shared_bytes(blocks: Blocks, bytes: int) -> int:
    """Shared memory of a program: the tiles of both factors, for each stage of the pipeline."""
    return (blocks.m + blocks.n) * blocks.k * bytes * blocks.num_stages


def fitted(blocks: Blocks, sizes: Sizes) -> Blocks:
    """The blocks, cut to the length of K, and shorter along K for wide elements, so that a tile's rows keep their size
    in bytes."""
    longest, shortest = 1 << max(sizes.k - 1, 0).bit_length(), max(SMALLEST, 32 // sizes.bytes)
    return attrs.evolve(blocks, k=max(shortest, min(blocks.k * 2 // max(sizes.bytes, 2), longest)))


def score(blocks: Blocks, sizes: Sizes, device: Device) -> float:
    """An estimate of the share of the device's peak that they reach."""
    programs = math.ceil(sizes.m / blocks.m) * math.ceil(sizes.n / blocks.n) * sizes.batch
    useful = sizes.batch * sizes.m * sizes.n / (programs * blocks.m * blocks.n)
    busy = programs / (math.ceil(programs / device.multiprocessors) * device.multiprocessors)
    reuse = blocks.m * blocks.n / (blocks.m + blocks.n)  # multiplications per element that is loaded
    return useful * busy * reuse / (reuse + 16)


def candidates(sizes: Sizes, device: Device) -> tuple[Blocks, ...]:
    """The tile sizes to measure, the most promising first."""
    fitting = dict.fromkeys(fitted(blocks, sizes) for blocks in CHOICES)
    usable: Sequence[Blocks] = [b for b in fitting if shared_bytes(b, sizes.bytes) <= device.shared]
    ranked = sorted(usable, key=lambda blocks: -score(blocks, sizes, device))
    return tuple(ranked[:MOST_MEASURED])
