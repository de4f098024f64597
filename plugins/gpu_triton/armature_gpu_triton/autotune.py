"""Tile sizes by rule: a small table, without measurements. The same kernel gets the same tiles on every machine.

If a compilation measures, it compares these tiles with `variations`.
"""

from __future__ import annotations

import attrs

PERSISTENT = 4096  # longest row that one program holds in registers if it reads its data once
PERSISTENT_REREAD = 16384  # the same for a kernel that would otherwise read the row again in each pass
PROGRAMS = 1024  # minimum number of programs: several for each of a big GPU's 132 multiprocessors
TILE = 2048  # elements of a reduction's tile
COLUMNS = 64  # most columns of a program that sums them; few columns take narrower tiles, for enough programs
LEAST_COLUMNS = 32  # bytes of a row that memory moves at once
COLUMN_PROGRAMS = 256  # minimum number of programs over columns that are not cut into pieces
COLUMN_ROWS = 64  # longest inner loop across memory that fits in one tile
CUT_ABOVE = 16384  # shorter rows are never split
CHUNK = 4096  # shortest piece of a split row
CUT_COLUMNS_ABOVE = 1024  # the same if memory is contiguous across rows, so that a program reads many rows at once
COLUMN_CHUNK = 256
CUT_GATHERS_ABOVE = 4096  # the same if the positions of elements are themselves loaded (a gather)
GATHER_CHUNK = 256
MOST_PIECES = 1024
SEVERAL_LOADS = 3  # of a point, from which on one access for each hides the latency of memory
SHARED_MEMORY = 96 << 10  # bytes of a multiprocessor's that rows which are loaded ahead may take
MOST_STAGES = 3  # tiles of rows that are loaded or computed at a time
LEAST_AHEAD = 512  # shortest row that is worth loading ahead
SQUARE = 64  # side of a tile whose accesses are contiguous along one side or the other; twice that up to 16 bits
LEAST_SQUARE = 8  # shorter sides are not worth a two-dimensional tile
LEAST_ROW = 256  # shortest row for which a tile of rows is made
LARGEST = 16384  # elements of a tile that is worth measuring
LEAST_FULL = 0.9  # minimum utilisation of the last tiles of a row


@attrs.frozen
class Shape:
    """The properties of a kernel that determine its tiles. x, r: points of the outer and inner loop (hints if
    symbolic); r is 0 for none.

    static: both are numbers. passes: those that run the inner loop. along_r: memory is contiguous in the inner loop.
    bytes: of the widest element. gathers: it loads from positions that are themselves loaded. loads: the number of all
    loads at a point. draws: it makes random numbers.
    """

    x: int
    r: int
    static: bool
    passes: int
    along_r: bool
    bytes: int
    gathers: bool = False
    loads: int = 1
    draws: bool = False


@attrs.frozen
class Config:
    """Tile sizes and resources of a program.

    rblock is 0 if tiles have one dimension. persistent: a program computes one tile along `r`, which holds a row;
    tiled: it is one of several, and the grid covers both dimensions.
    """

    xblock: int
    rblock: int
    num_warps: int
    num_stages: int = 2
    persistent: bool = False
    tiled: bool = False

    @property
    def label(self) -> str:
        """The text for reports: `loops 4x1024, 4 warps`."""
        sizes = f"{self.xblock}x{self.rblock}" if self.rblock else str(self.xblock)
        return f"loops {sizes}, {self.num_warps} warps"


def power(value: int) -> int:
    """The smallest power of two that is at least the value, and at least 1."""
    return 1 << max(value - 1, 0).bit_length()


def clamp(value: int, low: int, high: int) -> int:
    """The value, at least `low` and at most `high`."""
    return max(low, min(value, high))


def choose(shape: Shape) -> Config:
    """The tiles for a kernel."""
    if not shape.r:
        return pointwise(shape)
    limit = PERSISTENT_REREAD if shape.passes > 1 else PERSISTENT
    if shape.static and shape.r <= (limit if shape.along_r else COLUMN_ROWS):
        return persistent(shape)
    return looped(shape)


def pointwise(shape: Shape) -> Config:
    """Two accesses of 16 bytes per thread if the grid stays large enough: a single one does not hide memory latency.

    If it loads several values at each point, one access for each does.
    """
    xblock = 2048 if shape.bytes <= 2 else 1024 if shape.bytes <= 4 else 512
    while xblock > 128 and shape.x < xblock * PROGRAMS // 4:
        xblock //= 2
    if xblock == 2048 and shape.loads >= SEVERAL_LOADS:
        return Config(xblock, 0, num_warps=8)
    return Config(clamp(power(shape.x), 1, xblock), 0, num_warps=4 if xblock >= 512 else max(xblock // 128, 1))


def square(shape: Shape) -> Config | None:
    """Tiles of a pointwise kernel whose accesses are contiguous along either side; None if a side is too short."""
    if min(shape.x, shape.r) < LEAST_SQUARE:
        return None
    side = SQUARE * 2 if shape.bytes <= 2 else SQUARE
    xblock, rblock = clamp(power(shape.x), 1, side), clamp(power(shape.r), 1, side)
    while xblock > 16 and (-(-shape.x // xblock)) * (-(-shape.r // rblock)) < PROGRAMS // 4:
        xblock, rblock = xblock // 2, max(rblock // 2, 16)
    return Config(xblock, rblock, num_warps=warps(xblock * rblock // 4), persistent=True, tiled=True)


def rows(shape: Shape) -> Config | None:
    """Tiles of a pointwise kernel that loads some values once per row; None if rows would leave tiles half empty."""
    if not shape.static or shape.r < LEAST_ROW or shape.r * shape.bytes % 16:
        return None
    whole = pointwise(attrs.evolve(shape, x=shape.x * shape.r))
    rblock = whole.xblock
    while rblock > 128 and shape.r < LEAST_FULL * rblock * -(-shape.r // rblock):
        rblock //= 2
    if shape.r < LEAST_FULL * rblock * -(-shape.r // rblock):
        return None
    xblock = clamp(whole.xblock // rblock, 1, power(shape.x))
    return Config(xblock, rblock, num_warps=whole.num_warps, persistent=True, tiled=True)


def persistent(shape: Shape) -> Config:
    """Whole rows in registers."""
    rblock = power(shape.r)
    xblock = clamp(TILE // rblock, 1, power(shape.x))
    while xblock > 1 and shape.x < xblock * PROGRAMS // 2:
        xblock //= 2
    # A thread draws several random numbers at a time, at the price of one, which takes its time.
    return Config(xblock, rblock, num_warps=warps(xblock * rblock // (4 if shape.draws else 2)), persistent=True)


def rows_in_turn(shape: Shape, row_bytes: int) -> Config:
    """Whole rows in registers, where a program runs over the rows of a part (`x` counts these); the next rows are
    loaded meanwhile. row_bytes: what it loads for a row."""
    rblock = power(shape.r)
    xblock = clamp(2 * TILE // rblock, 1, power(shape.x))
    if rblock < LEAST_AHEAD:
        return Config(xblock, rblock, warps(xblock * rblock // 2), num_stages=1, persistent=True)
    stages = clamp(SHARED_MEMORY // max(xblock * row_bytes, 1), 1, MOST_STAGES)
    return Config(xblock, rblock, warps(xblock * rblock // 4), num_stages=stages, persistent=True)


def looped(shape: Shape) -> Config:
    """A loop over pieces of the row, long in the direction in which memory is contiguous."""
    if shape.along_r:
        # 16 elements per thread: a loop waits for its loads in each iteration, so more of them must be in flight.
        rblock = clamp(power(shape.r), 1, 2 * TILE)
        xblock = clamp(TILE // rblock, 1, power(shape.x))
        return Config(xblock, rblock, num_warps=clamp(xblock * rblock // 512, 1, 8))
    xblock = clamp(power(shape.x), 1, COLUMNS)
    if not shape.static or shape.r < CUT_COLUMNS_ABOVE:  # longer ones are cut into pieces
        while xblock * shape.bytes > LEAST_COLUMNS and shape.x < xblock * COLUMN_PROGRAMS:
            xblock //= 2
    rblock = clamp(TILE // xblock, 1, power(shape.r))
    return Config(xblock, rblock, num_warps=warps(xblock * rblock // (2 if xblock == COLUMNS else 1)))


def variations(config: Config) -> tuple[Config, ...]:
    """Other tile sizes that may be faster: half and twice as large, and with half and twice as many warps.

    A tile that holds a whole row keeps its length.
    """
    across = config.persistent or not config.rblock
    found: list[Config] = []
    for size in (config.xblock // 2, config.xblock * 2) if across else (config.rblock // 2, config.rblock * 2):
        changed = attrs.evolve(config, xblock=size) if across else attrs.evolve(config, rblock=size)
        if size >= 1 and changed.xblock * max(changed.rblock, 1) <= LARGEST:
            found.append(changed)
    found += [attrs.evolve(config, num_warps=n) for n in (config.num_warps // 2, config.num_warps * 2) if 1 <= n <= 16]
    return tuple(dict.fromkeys(found))


def warps(elements: int) -> int:
    """8 elements a thread, 1 to 16 warps."""
    return clamp(power(elements // 256), 1, 16)


def pieces(shape: Shape) -> int:
    """The number of pieces per row, so that a short `x` still fills the GPU; 1 for no split."""
    shortest, chunk, rows = (CUT_ABOVE, CHUNK, 1) if shape.along_r else (CUT_COLUMNS_ABOVE, COLUMN_CHUNK, 64)
    if shape.gathers and shape.along_r:
        shortest, chunk = CUT_GATHERS_ABOVE, GATHER_CHUNK
    if not shape.static or shape.r < shortest:
        return 1
    programs = -(-shape.x // rows)
    return clamp(min(PROGRAMS // max(programs, 1), shape.r // chunk), 1, MOST_PIECES)
