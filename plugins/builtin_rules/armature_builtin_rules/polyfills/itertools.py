"""Polyfills for the iterators of itertools: generators that yield the same items in the same order, as lazily.

Arguments are checked and iterators taken at the call, before the generator is made. The generator has the original's
parameters, and the original called with its arguments is an equivalent iterator: one that leaves the frame unstarted is
rebuilt this way.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def rest(items: Iterator[T]) -> Iterator[T]:
    """The remaining items of an iterator. A `for` loop over it would call its `__iter__` a second time."""
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        yield item


def _second(_total: Any, item: object) -> Any:
    return _total + item


def accumulate(
    iterable: Iterable[T], func: Callable[[T, T], T] | None = None, *, initial: object = None
) -> Iterator[T]:
    """Running totals."""
    return _accumulated(iter(iterable), func, initial=initial)


def _accumulated(items: Iterator[T], func: Callable[[T, T], T] | None, *, initial: Any) -> Iterator[T]:
    combine = _second if func is None else func
    total = initial
    if initial is None:
        try:
            total = next(items)
        except StopIteration:
            return
    yield total
    for item in rest(items):
        total = combine(total, item)
        yield total


def chain(*iterables: Iterable[T]) -> Iterator[T]:
    """All items of the first, then of the second, ..."""
    for iterable in iterables:
        yield from iterable


def from_iterable(iterables: Iterable[Iterable[T]], /) -> Iterator[T]:
    """`chain` over the iterables yielded by an iterable."""
    return _chained(iter(iterables))


def _chained(iterables: Iterator[Iterable[T]]) -> Iterator[T]:
    for iterable in rest(iterables):
        yield from iterable


def combinations(iterable: Iterable[T], r: int) -> Iterator[tuple[T, ...]]:
    """All combinations of r items, ordered by position."""
    r = operator.index(r)
    pool = tuple(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combined(pool, r)


def _combined(pool: tuple[T, ...], r: int) -> Iterator[tuple[T, ...]]:
    size = len(pool)
    if r > size:
        return
    chosen = list(range(r))
    yield tuple([pool[i] for i in chosen])
    while True:
        place = r - 1
        while place >= 0 and chosen[place] == place + size - r:
            place -= 1
        if place < 0:
            return
        chosen[place] += 1
        for later in range(place + 1, r):
            chosen[later] = chosen[later - 1] + 1
        yield tuple([pool[i] for i in chosen])


def compress(data: Iterable[T], selectors: Iterable[object]) -> Iterator[T]:
    """The items whose selector is true."""
    return _selected(iter(data), iter(selectors))


def _selected(data: Iterator[T], selectors: Iterator[object]) -> Iterator[T]:
    for item, selected in zip(rest(data), rest(selectors)):
        if selected:
            yield item


def count(start: object = 0, step: object = 1) -> Iterator[object]:
    """start, start + step, ..."""
    for number in (start, step):
        if not isinstance(number, complex) and not any(hasattr(type(number), name) for name in NUMBERS_HAVE):
            raise TypeError("a number is required")
    return _counted(start, step)


NUMBERS_HAVE = ("__index__", "__int__", "__float__")


def _counted(number: Any, step: object) -> Iterator[object]:
    while True:
        yield number
        number = number + step


def cycle(iterable: Iterable[T], /) -> Iterator[T]:
    """The items, repeated endlessly."""
    return _cycled(iter(iterable))


def _cycled(items: Iterator[T]) -> Iterator[T]:
    kept = []
    for item in rest(items):
        kept.append(item)
        yield item
    while kept:
        yield from kept


def dropwhile(predicate: Callable[[T], object], iterable: Iterable[T], /) -> Iterator[T]:
    """The items from the first one that fails the predicate."""
    return _dropped(predicate, iter(iterable))


def _dropped(predicate: Callable[[T], object], items: Iterator[T]) -> Iterator[T]:
    dropping = True
    for item in rest(items):
        if dropping and predicate(item):
            continue
        dropping = False
        yield item


def filterfalse(function: Callable[[T], object] | None, iterable: Iterable[T], /) -> Iterator[T]:
    """The items for which the function is false."""
    return _left_over(function, iter(iterable))


def _left_over(function: Callable[[T], object] | None, items: Iterator[T]) -> Iterator[T]:
    for item in rest(items):
        if not (item if function is None else function(item)):
            yield item


def combinations_with_replacement(iterable: Iterable[T], r: int) -> Iterator[tuple[T, ...]]:
    """All combinations of r items with repetition, ordered by position."""
    r = operator.index(r)
    pool = tuple(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _in_order(pool, r)


def _in_order(pool: tuple[T, ...], r: int) -> Iterator[tuple[T, ...]]:
    for positions in product(range(len(pool)), repeat=r):
        if sorted(positions) == list(positions):
            yield tuple([pool[i] for i in positions])


def groupby(iterable: Iterable[T], key: Callable[[T], object] | None = None) -> Iterator[tuple[object, Iterator[T]]]:
    """Runs of neighbours with equal keys; advancing to the next run ends the previous one."""
    return _grouped(iter(iterable), key)


def _grouped(items: Iterator[T], key: Callable[[T], object] | None) -> Iterator[tuple[object, Iterator[T]]]:
    try:
        item = next(items)
    except StopIteration:
        return
    held = item if key is None else key(item)
    ended = False

    def run(wanted: object) -> Iterator[T]:
        nonlocal item, held, ended
        yield item
        for item in rest(items):
            held = item if key is None else key(item)
            if not (held is wanted or held == wanted):
                return
            yield item
        ended = True

    while not ended:
        wanted = held
        members = run(wanted)
        yield wanted, members
        if held is wanted or held == wanted:
            for _ in members:
                pass


def tee(iterable: Iterable[T], n: int = 2, /) -> tuple[Iterator[T], ...]:
    """Independent iterators over one iterator: a chain of cells, filled by whichever comes first."""
    n = operator.index(n)
    if n < 0:
        raise ValueError("n must be >= 0")
    items = iter(iter(iterable))  # as C does
    first: list[Any] = []
    return tuple([_follow(items, first) for _ in range(n)])


def _follow(items: Iterator[T], cell: list[Any]) -> Iterator[T]:
    while True:
        if not cell:
            try:
                item = next(items)
            except StopIteration:
                return
            cell.append(item)
            cell.append([])
        yield cell[0]
        cell = cell[1]


def islice(iterable: Iterable[T], *limits: int | None) -> Iterator[T]:
    """`iterable[start:stop:step]` of an iterator. The limits are checked at the call, as in C."""
    start, stop, step = (0, limits[0], 1) if len(limits) == 1 else (*limits, 1)[:3]
    start = (0 if start is None else operator.index(start)) if _is_limit(start) else -1
    given, stop = stop, operator.index(stop) if stop is not None and _is_limit(stop) else None
    if stop == -1 or (stop is None and given is not None):
        raise ValueError("Stop argument for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    if start < 0 or (stop is not None and stop < 0):
        raise ValueError("Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    if not _is_limit(step):
        raise ValueError("Step for islice() must be a positive integer or None.")
    step = 1 if step is None else operator.index(step)
    if step < 1:
        raise ValueError("Step for islice() must be a positive integer or None.")
    return _sliced(iter(iterable), start, stop, step)


def _is_limit(value: object) -> bool:
    return value is None or hasattr(type(value), "__index__")


def _sliced(items: Iterator[T], start: int, stop: int | None, step: int) -> Iterator[T]:
    wanted = start
    if stop is not None and wanted >= stop and stop == 0:
        return
    position = 0
    while stop is None or position < stop:
        try:
            item = next(items)
        except StopIteration:
            return
        if position == wanted:
            yield item
            wanted += step
        position += 1


def pairwise(iterable: Iterable[T], /) -> Iterator[tuple[T, T]]:
    """Pairs of neighbours."""
    return _neighbours(iter(iterable))


def _neighbours(items: Iterator[T]) -> Iterator[tuple[T, T]]:
    try:
        left = next(items)
    except StopIteration:
        return
    for right in rest(items):
        yield left, right
        left = right


def permutations(iterable: Iterable[T], r: int | None = None) -> Iterator[tuple[T, ...]]:
    """All permutations of r items, ordered by position."""
    pool = tuple(iterable)
    if r is not None and not isinstance(r, int):
        raise TypeError("Expected int as r")
    size = len(pool) if r is None else r
    if size < 0:
        raise ValueError("r must be non-negative")
    return _in_all_orders(pool, size)


def _in_all_orders(pool: tuple[T, ...], r: int) -> Iterator[tuple[T, ...]]:
    for positions in product(range(len(pool)), repeat=r):
        if len(set(positions)) == r:
            yield tuple([pool[i] for i in positions])


def product(*iterables: Iterable[T], repeat: int = 1) -> Iterator[tuple[T, ...]]:
    """All tuples with one item from each iterable, the last varying fastest."""
    repeat = operator.index(repeat)
    if repeat < 0:
        raise ValueError("repeat argument cannot be negative")
    return _multiplied(*[tuple(iterable) for iterable in iterables] * repeat)


def _multiplied(*pools: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    found: list[tuple[T, ...]] = [()]
    for pool in pools:
        found = [(*head, item) for head in found for item in pool]
    yield from found


FOREVER = object()


def repeat(object: T, times: Any = FOREVER) -> Iterator[T]:
    """The object, endlessly or a number of times."""
    return _repeated_forever(object) if times is FOREVER else _repeated(object, operator.index(times))


def _repeated(given: T, times: int) -> Iterator[T]:
    for _ in range(times):
        yield given


def _repeated_forever(given: T) -> Iterator[T]:
    while True:
        yield given


def starmap(function: Callable[..., T], iterable: Iterable[Iterable[object]], /) -> Iterator[T]:
    """function(*item) of each item."""
    return _mapped(function, iter(iterable))


def _mapped(function: Callable[..., T], items: Iterator[Iterable[object]]) -> Iterator[T]:
    for item in rest(items):
        yield function(*item)


def takewhile(predicate: Callable[[T], object], iterable: Iterable[T], /) -> Iterator[T]:
    """The items up to the first one that fails the predicate."""
    return _taken(predicate, iter(iterable))


def _taken(predicate: Callable[[T], object], items: Iterator[T]) -> Iterator[T]:
    for item in rest(items):
        if not predicate(item):
            return
        yield item


def zip_longest(*iterables: Iterable[T], fillvalue: object = None) -> Iterator[tuple[object, ...]]:
    """Tuples until the longest ends."""
    return _zipped(*[iter(iterable) for iterable in iterables], fillvalue=fillvalue)


def _zipped(*iterators: Iterator[T], fillvalue: object) -> Iterator[tuple[object, ...]]:
    open_ones = [True] * len(iterators)
    while iterators:
        row: list[object] = []
        for place, iterator in enumerate(iterators):
            item = fillvalue
            if open_ones[place]:
                try:
                    item = next(iterator)
                except StopIteration:
                    open_ones[place] = False
            row.append(item)
        if True not in open_ones:
            return
        yield tuple(row)


STAND_INS = (
    (itertools.accumulate, accumulate),
    (itertools.chain, chain),
    (itertools.chain.from_iterable, from_iterable),
    (itertools.combinations, combinations),
    (itertools.combinations_with_replacement, combinations_with_replacement),
    (itertools.groupby, groupby),
    (itertools.tee, tee),
    (itertools.compress, compress),
    (itertools.count, count),
    (itertools.cycle, cycle),
    (itertools.dropwhile, dropwhile),
    (itertools.filterfalse, filterfalse),
    (itertools.islice, islice),
    (itertools.pairwise, pairwise),
    (itertools.permutations, permutations),
    (itertools.product, product),
    (itertools.repeat, repeat),
    (itertools.starmap, starmap),
    (itertools.takewhile, takewhile),
    (itertools.zip_longest, zip_longest),
)
