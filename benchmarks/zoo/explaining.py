"""Differences from eager mode that are the program's own: it checks whether it is compiled, or rounding changes as
much.

Both are shown by running the program in eager mode again: told that it is compiled, or with slightly perturbed weights.
A difference that neither reproduces remains a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import torch

from benchmarks.zoo.building import short
from benchmarks.zoo.tensors import Difference, Results, differences, error_of, largest

SHAKES = 3
SHAKEN = 1e-6  # relative; a few units in the last place of float32
AS_FAR = 0.1  # the share of a difference that a perturbation must reproduce, if it moves the result by FAR at least
FAR = 1e-3  # of the largest value; below it a perturbation must reproduce half of the difference
Run = Callable[[], tuple[Results, Results | None]]  # in eager mode, and in float64 if that is possible


@contextmanager
def said_to_be_compiled() -> Iterator[None]:
    """In this context `torch.compiler.is_compiling()` returns True, as it does for code being traced."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def shake(model: torch.nn.Module, number: int) -> None:
    """Perturb each parameter by less than the rounding error of a sum."""
    generator = torch.Generator().manual_seed(100 + number)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator).to(parameter.device, parameter.dtype)
                parameter.mul_(1 + SHAKEN * noise)


@attrs.frozen
class Explained:
    """Differences by explanation."""

    wrong: list[Difference]
    asks: list[Difference]  # the program checks whether it is compiled, and behaves differently
    unstable: list[Difference]  # rounding changes the result as much


def explained(
    found: Results,
    wrong: list[Difference],
    eager: Results,
    exact: Results | None,
    told: Run,
    shaken: Callable[[int], Results],
) -> Explained:
    """Sort differences by explanation. exact: eager mode in float64. `told` and `shaken` run the program again, and may
    raise."""
    serious = [one for one in wrong if one.kind != "strides"]
    if not serious:
        return Explained(wrong, [], [])
    if _as_told(found, eager, told):
        return Explained([one for one in wrong if one.kind == "strides"], serious, [])
    # A detector has as many boxes as pass a threshold: where float64 has another number of them, rounding decides.
    unstable = [one for one in serious if one.kind == "shape" and exact is not None and moved(one, exact, eager)]
    unstable += _as_shaken([one for one in serious if one not in unstable], eager, shaken)
    return Explained([one for one in wrong if one not in unstable], [], unstable)


def _as_told(found: Results, eager: Results, told: Run) -> bool:
    """Whether eager mode gives the found result if told that it is compiled, and a different one otherwise."""
    try:
        with said_to_be_compiled():
            results, exact = told()
    except Exception:  # a path that needs a compiler explains nothing
        return False
    alike = [one for one in differences(found, results, exact) if one.kind != "strides"]
    return not alike and any(one.kind != "strides" for one in differences(results, eager, None))


def raises_as_told(text: str, told: Run) -> bool:
    """Whether eager mode raises the same error, `text`, if told that it is compiled."""
    try:
        with said_to_be_compiled():
            told()
    except Exception as error:
        return short(error, 600) == text
    return False


def _as_shaken(serious: list[Difference], eager: Results, shaken: Callable[[int], Results]) -> list[Difference]:
    """The differences that perturbed weights also produce."""
    if not serious:
        return []
    explained_ones: list[Difference] = []
    for number in range(SHAKES):
        try:
            other = shaken(number)
        except Exception:
            break
        explained_ones += [one for one in serious if one not in explained_ones and moved(one, other, eager)]
    return explained_ones


def moved(one: Difference, other: Results, eager: Results) -> bool:
    """Whether a tensor of another run differs from eager mode's as much as the difference, or in its shape."""
    before, after = (results.groups.get(one.group, {}).get(one.path) for results in (eager, other))
    if before is None or after is None:
        return before is not after
    if before.values.shape != after.values.shape:
        return True
    if one.kind != "value":
        return False
    by = error_of(after.values, before.values, max(largest(before.values), 1e-30))
    return by > max(AS_FAR * one.error, FAR) or by > max(one.error / 2, one.allowed)
