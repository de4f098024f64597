"""Programs that break the graph, each at the line that ends with `# here`, for one cause each."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import logging
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import armature

log = logging.getLogger("program")
LOCK = threading.Lock()


def branch_on_a_sum(x: Any) -> Any:
    y = x * 2
    if y.sum() > 0:  # here
        return y + 1
    return y - 1


def loop_until_small(x: Any) -> Any:
    while x.norm() > 1:  # here
        x = x / 2
    return x


def prints(x: Any) -> Any:
    y = x + 1
    print("shape", y.shape)  # here
    return y * 2


def logs(x: Any) -> Any:
    y = x + 1
    log.warning("a message")  # here
    return y * 2


def takes_a_number_out(x: Any) -> Any:
    n = x.sum().item()  # here
    return x * n


def makes_a_list(x: Any) -> Any:
    numbers = (x * 2).tolist()  # here
    return x + len(numbers)


def unique_values(x: Any) -> Any:
    found = torch.unique(x)  # here
    return found * 2


def size_by_values(x: Any) -> Any:
    kept = x[x > 0]  # here
    return kept * 2


def where_nonzero(x: Any) -> Any:
    places = torch.nonzero(x)  # here
    return places + 1


def asks_for_a_break(x: Any) -> Any:
    y = x + 1
    armature.graph_break("the loader is not ready")  # here
    return y * 2


@armature.disable
def left_out(x: Any) -> Any:
    return x.relu()


def calls_a_disabled_function(x: Any) -> Any:
    y = x + 1
    return left_out(y) * 2  # here


def reads_a_file(x: Any) -> Any:
    y = x + 1
    text = Path(__file__).read_text()  # here
    return y * len(text[:3])


def looks_at_the_clock(x: Any) -> Any:
    y = x + 1
    begin = time.time()  # here
    return y * (begin > 0)


def takes_a_lock(x: Any) -> Any:
    y = x + 1
    lock = threading.Lock()  # here
    with lock:
        return y * 2


def reads_its_source(x: Any) -> Any:
    y = x + 1
    source = inspect.getsource(prints)  # here
    return y * len(source[:2])


class Inner(nn.Module):
    def forward(self, x: Any) -> Any:
        y = x * 3
        if y.mean() > 0:  # here
            return y
        return -y


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Any) -> Any:
        return self.inner(x + 1) * 2


def indexes_by_the_largest(x: Any) -> Any:
    best = int(x.argmax())  # here
    return x[best] + 1


def asks_for_an_address(x: Any) -> Any:
    y = x + 1
    address = y.data_ptr()  # here
    return y * (address % 2 + 1)


def evaluates_text(x: Any) -> Any:
    y = x + 1
    factor = eval("1 + 1")  # here
    return y * factor


def runs_a_coroutine(x: Any) -> Any:
    y = x + 1
    asyncio.run(nothing())  # here
    return y * 2


async def nothing() -> None:
    return None


def saves(x: Any) -> Any:
    y = x + 1
    torch.save({}, "/dev/null")  # here
    return y * 2


def holds_a_lock(x: Any) -> Any:
    y = x + 1
    with LOCK:  # here
        return y * 2


def asks_the_date(x: Any) -> Any:
    y = x + 1
    today = datetime.date.today()  # here
    return y * len(str(today))
