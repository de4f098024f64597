"""timm: the smallest models of each of its files, at a small input and with few blocks where they take that."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.zoo.case import Build, Case, Library, once_each

EACH = 2  # models per file
SMALL = ("test_", "atto", "femto", "pico", "nano", "zepto", "xxs", "xxt", "tiny", "extra_small", "xs", "_s0", "_t0")
MEDIUM = ("small", "_s_", "_s$", "050", "18", "_b0", "_lite", "mini", "micro", "_m0", "_25")
# Arguments that reduce depth, by the names that families use; arguments that a constructor refuses are left out.
SHALLOW: tuple[dict[str, Any], ...] = (
    {"depths": (1, 1, 1, 1)},
    {"depth": 2},
    {"depths": (1, 1, 1)},
    {"layers": (1, 1, 1, 1)},
    {},
)
SIZES = (64, 96, 128, 224)


def rank(name: str) -> tuple[int, int, str]:
    """Order small models first, by words in their names."""
    size = 0 if any(word in name for word in SMALL) else 1 if any(re.search(word, name) for word in MEDIUM) else 2
    return size, len(name), name


def names() -> Iterator[str]:
    """The smallest models of each file."""
    import timm  # noqa: PLC0415

    for module in timm.list_modules():
        yield from sorted(timm.list_models(module=module), key=rank)[:EACH]


def build(name: str, size: int | None, options: dict[str, Any]) -> Case:
    """A model with ten classes. size: of the input, also passed to the constructor; None: the default."""
    import timm  # noqa: PLC0415

    given = dict(options)
    sized = given.pop("sized", False)
    if sized and size is not None:
        given["img_size"] = size
    model = timm.create_model(name, pretrained=False, num_classes=10, **given)
    channels, *native = model.pretrained_cfg["input_size"] if hasattr(model, "pretrained_cfg") else (3, 224, 224)
    height, width = native if size is None else (size, size)
    return Case(model, (torch.randn(2, channels, height, width),))


def ways(name: str) -> Iterator[Build]:
    """Shallow before deep, and small inputs before large ones."""
    plans = [(size, {"sized": sized, **options}) for options in SHALLOW for sized in (True, False) for size in (64,)]
    plans += [(size, {"sized": sized}) for size in SIZES[1:] for sized in (True, False)] + [(None, {})]
    for plan in once_each({"size": size, **options} for size, options in plans):
        yield functools.partial(build, name, plan.pop("size"), plan)


LIBRARY = Library("timm", ("timm",), names, ways)
