"""Prepares a model of the zoo for comparison: the same weights each time, and nothing random in a call."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import nn

from benchmarks.zoo.case import Build, Case, NotBuildable
from benchmarks.zoo.tensors import tensors_of

SLOW = 20.0  # eager seconds per call that are too slow for the zoo
LARGE = 60_000_000  # parameters
DROPS = re.compile(r"drop|stochastic|mask_(time|feature)_prob|jitter|token_noise", re.IGNORECASE)
TRIES = 35
PATIENCE = 60.0  # seconds in which a way must be found


def seed(number: int = 0) -> None:
    """Seed every generator that models use."""
    random.seed(number)
    numpy.random.seed(number)
    torch.manual_seed(number)


@contextmanager
def unset_memory_shows() -> Iterator[None]:
    """In this context uninitialised memory is NaN, which `repair` finds."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def repair(model: nn.Module) -> None:
    """Set parameters and buffers that were left uninitialised."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if isinstance(tensor, nn.parameter.UninitializedTensorMixin) or not tensor.is_floating_point():
                continue
            if not bool(tensor.isfinite().all()) and not bool(tensor.isinf().any()):
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.02)


def without_dropout(model: nn.Module) -> None:
    """Set every dropout probability to 0, in modules and in their configurations."""
    for module in model.modules():
        if re.search("drop|stochasticdepth", type(module).__name__, re.IGNORECASE) and hasattr(module, "p"):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):
            for name, value in list(getattr(holder, "__dict__", {}).items()):
                if isinstance(value, float) and DROPS.search(name):
                    setattr(holder, name, 0.0)
                elif name == "apply_spec_augment":
                    setattr(holder, name, False)


def made(build: Build, device: str) -> Case:
    """The case, built on a device with the same random numbers each time."""
    seed()
    with unset_memory_shows():
        case = build()
    repair(case.model)
    without_dropout(case.model)
    if device != "cpu":
        case.model.to(device)
        move = lambda value: torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), value)  # noqa: E731
        case.args, case.kwargs = move(case.args), move(case.kwargs)
        case.train = None if case.train is None else move(case.train)
    return case


def first_that_runs(ways: Iterator[Build], device: str) -> tuple[Build, Case, float]:
    """The first way whose model runs in eager mode, with seconds of that call. Raises NotBuildable."""
    said: list[str] = []
    begun = time.perf_counter()
    for number, build in enumerate(ways):
        if number >= TRIES or time.perf_counter() - begun > PATIENCE:
            break
        try:
            case = made(build, device)
            if (size := sum(p.numel() for p in case.model.parameters())) > LARGE:
                raise NotBuildable(f"{size} parameters")
            case.model.eval()
            seed(2)
            start = time.perf_counter()
            with torch.no_grad():
                result = case.model(*case.args, **case.kwargs)
            took = time.perf_counter() - start
            if not any(True for _ in tensors_of(result)):
                raise NotBuildable("a call gives no tensor")
            if took > SLOW:
                raise NotBuildable(f"an eager call takes {took:.0f} s")
        except Exception as error:  # whatever a library raises for a size that it does not support
            said.append(short(error))
        else:
            return build, made(build, device), took
    raise NotBuildable(" | ".join(dict.fromkeys(said)) or "no way to build it")


def short(error: BaseException, width: int = 300) -> str:
    """An exception as one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= width else f"{text[: width - 3]}..."


def place_of(error: BaseException, part: str) -> str:
    """File, line and function of the innermost traceback frame whose file name contains `part`."""
    found = ""
    trace: Any = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if part in code.co_filename:
            found = f"{code.co_filename}:{trace.tb_lineno} in {code.co_qualname}"
        trace = trace.tb_next
    return found
