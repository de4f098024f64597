"""Parts of Python that are written in C."""

from __future__ import annotations

import binascii
import contextvars
import ctypes
import hashlib
import io
import select
import sqlite3
import unicodedata
import zlib
from collections.abc import Iterator
from datetime import date
from decimal import Decimal

import torch
from torch import Tensor

NAME = b"encoder"
PACKED = zlib.compress(bytes(4))
TODAY = date(2026, 1, 2)
PRICE = Decimal("1.50")
WIDTH = contextvars.ContextVar("WIDTH", default=2)
SEEDS = {b"encoder": 3, b"decoder": 5}
DATABASE = sqlite3.connect(":memory:", check_same_thread=False)
SQUARE_ROOT = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda number: number**0.5)


def computes_digest(x: Tensor) -> object:
    return x + hashlib.sha256(NAME).digest()[0]


def computes_digest_mended(x: Tensor) -> object:
    return x + SEEDS[NAME]


def compresses_bytes(x: Tensor) -> object:
    return x + len(zlib.decompress(PACKED))


def unpacked() -> tuple[object, ...]:
    return torch.ones(2, 3), len(zlib.decompress(PACKED))


compresses_bytes_mended_inputs = unpacked


def compresses_bytes_mended(x: Tensor, size: int) -> object:
    return x + size


def asks_a_database(x: Tensor) -> object:
    ((found,),) = DATABASE.execute("select 2").fetchall()
    return x + found


def answered() -> tuple[object, ...]:
    return torch.ones(2, 3), DATABASE.execute("select 2").fetchone()[0]


asks_a_database_mended_inputs = answered


def asks_a_database_mended(x: Tensor, found: int) -> object:
    return x + found


def works_on_buffer(x: Tensor) -> object:
    text = io.StringIO()
    text.write("size ")
    text.write(str(x.shape[0]))
    return x + 1, text.getvalue()


def works_on_buffer_mended(x: Tensor) -> object:
    return x + 1, f"size {x.shape[0]}"


def date_or_time(x: Tensor) -> object:
    return x + TODAY.year


def dated() -> tuple[object, ...]:
    return torch.ones(2, 3), TODAY.year


date_or_time_mended_inputs = dated


def date_or_time_mended(x: Tensor, year: int) -> object:
    return x + year


def decimal_number(x: Tensor) -> object:
    return x * float(PRICE.sqrt())


def priced() -> tuple[object, ...]:
    return torch.ones(2, 3), float(PRICE.sqrt())


decimal_number_mended_inputs = priced


def decimal_number_mended(x: Tensor, factor: float) -> object:
    return x * factor


def packs_bytes(x: Tensor) -> object:
    return x + binascii.unhexlify("02")[0]


def packs_bytes_mended(x: Tensor) -> object:
    return x + bytes.fromhex("02")[0]


def _numbers() -> Iterator[int]:
    yield 1
    yield 2


def in_progress() -> tuple[object, ...]:
    return torch.ones(2, 3), _numbers()


drives_generator_inputs = in_progress


def drives_generator(x: Tensor, numbers: Iterator[int]) -> object:
    return x + next(iter(numbers))


def listed() -> tuple[object, ...]:
    return torch.ones(2, 3), list(_numbers())


drives_generator_mended_inputs = listed


def drives_generator_mended(x: Tensor, numbers: list[int]) -> object:
    return x + next(iter(numbers))


def uses_network(x: Tensor) -> object:
    ready, _, _ = select.select([], [], [], 0)
    return x + len(ready)


def uses_network_mended(x: Tensor) -> object:
    return x + 0


def context_variable(x: Tensor) -> object:
    return x * contextvars.copy_context().get(WIDTH, 2)


def context_variable_mended(x: Tensor) -> object:
    return x * WIDTH.get()


def parses_text(x: Tensor) -> object:
    return x + len(unicodedata.normalize("NFD", "\u00e4"))


def parses_text_mended(x: Tensor) -> object:
    return x + len("a\u0308")


def foreign_code(x: Tensor) -> object:
    return x * SQUARE_ROOT(4.0)


def foreign_code_mended(x: Tensor) -> object:
    return x * 4.0**0.5
