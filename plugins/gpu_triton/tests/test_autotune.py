"""Tile sizes by rule."""

from __future__ import annotations

import attrs
import pytest

from armature_gpu_triton.autotune import (
    LEAST_FULL,
    SHARED_MEMORY,
    Shape,
    choose,
    pieces,
    power,
    rows,
    rows_in_turn,
    square,
)

ROWS = Shape(x=4096, r=1000, static=True, passes=1, along_r=True, bytes=4)


def powers_of_two(*values: int) -> bool:
    return all(v & (v - 1) == 0 and v > 0 for v in values)


@pytest.mark.parametrize("x", [1, 3, 100, 5000, 10**6, 2**28])
@pytest.mark.parametrize("r", [0, 1, 7, 64, 1000, 5000, 10**6])
@pytest.mark.parametrize("along_r", [True, False])
def test_every_choice_is_one_that_triton_takes(x: int, r: int, along_r: bool) -> None:
    config = choose(attrs.evolve(ROWS, x=x, r=r, along_r=along_r))
    assert powers_of_two(config.xblock, config.num_warps) and (config.rblock == 0) == (r == 0)
    assert r == 0 or powers_of_two(config.rblock)
    assert config.num_warps <= 16 and config.xblock * max(config.rblock, 1) <= 16384
    assert not config.persistent or config.rblock >= r


def test_small_work_is_spread_over_many_programs() -> None:
    small, large = (choose(attrs.evolve(ROWS, x=x, r=0)) for x in (2**14, 2**24))
    assert 2**14 // small.xblock >= 100 and large.xblock == 1024


def test_a_row_is_kept_in_registers_longer_where_it_is_read_again() -> None:
    long = attrs.evolve(ROWS, r=10_000)
    assert not choose(long).persistent
    assert choose(attrs.evolve(long, passes=3)).persistent
    assert not choose(attrs.evolve(long, passes=3, static=False)).persistent


def test_few_columns_are_summed_by_many_programs_that_read_whole_sectors() -> None:
    for size, least in ((2, 16), (4, 8)):
        few, many = (choose(attrs.evolve(ROWS, x=x, r=512, along_r=False, bytes=size)) for x in (300, 10**5))
        assert (few.xblock, many.xblock) == (least, 64) and few.rblock > many.rblock


def test_rows_of_a_part_are_loaded_ahead_as_far_as_they_fit() -> None:
    stages = {}
    for r in (256, 4096, 16384):
        config = rows_in_turn(attrs.evolve(ROWS, x=32, r=r), row_bytes=8 * r)
        assert config.persistent and config.rblock == r
        assert config.num_stages == 1 or config.num_stages * config.xblock * 8 * r <= SHARED_MEMORY
        stages[r] = config.num_stages
    assert stages == {256: 1, 4096: 3, 16384: 1}


def test_threads_that_draw_random_numbers_have_more_to_do() -> None:
    with_numbers, without = (choose(attrs.evolve(ROWS, r=4096, draws=draws)) for draws in (True, False))
    assert with_numbers == attrs.evolve(without, num_warps=without.num_warps // 2)


def test_a_point_of_several_loads_takes_more_threads() -> None:
    one, several = (choose(attrs.evolve(ROWS, x=2**26, r=0, bytes=2, loads=loads)) for loads in (1, 3))
    assert several == attrs.evolve(one, num_warps=2 * one.num_warps)


def test_tiles_are_long_where_memory_is_contiguous() -> None:
    across = choose(attrs.evolve(ROWS, r=100_000, along_r=False))
    along = choose(attrs.evolve(ROWS, r=100_000))
    assert across.xblock >= 32 and along.rblock >= 1024


@pytest.mark.parametrize(
    ("x", "r", "along_r", "cut"),
    [
        (1, 10**6, True, True), (64, 131_072, True, True), (4096, 10**6, True, False), (1, 4096, True, False),
        (768, 2048, False, True), (10**6, 2048, False, False), (768, 512, False, False),
    ],
)  # fmt: skip
def test_rows_are_cut_where_they_are_long_and_few(x: int, r: int, along_r: bool, cut: bool) -> None:
    found = pieces(attrs.evolve(ROWS, x=x, r=r, along_r=along_r))
    assert (found > 1) == cut
    assert pieces(attrs.evolve(ROWS, x=x, r=r, along_r=along_r, static=False)) == 1


@pytest.mark.parametrize("x", [1, 16, 100, 5000, 10**6])
@pytest.mark.parametrize("r", [8, 16, 256, 512, 3136, 10**6])
def test_tiles_of_two_dimensions_are_ones_that_triton_takes(x: int, r: int) -> None:
    found = [config for config in (square(attrs.evolve(ROWS, x=x, r=r)), rows(attrs.evolve(ROWS, x=x, r=r))) if config]
    assert bool(found) == (min(x, r) >= 8 or r >= 256)
    for config in found:
        assert config.tiled and powers_of_two(config.xblock, config.rblock, config.num_warps)
        assert 128 <= config.xblock * config.rblock <= 16384 and config.num_warps <= 16


def test_tiles_of_rows_are_full() -> None:
    for length in range(256, 4096, 4):
        config = rows(attrs.evolve(ROWS, r=length))
        if config is not None:
            tiles = -(-length // config.rblock)
            assert length >= LEAST_FULL * tiles * config.rblock


def test_rows_of_gathers_are_cut_sooner() -> None:
    """Each element waits for two trips to memory, one after the other, which one program can't have many of."""
    losses = attrs.evolve(ROWS, x=1, r=8192)
    assert pieces(losses) == 1 and pieces(attrs.evolve(losses, gathers=True)) == 32
    assert pieces(attrs.evolve(losses, r=2048, gathers=True)) == 1


def test_power() -> None:
    assert [power(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]
