"""The models of the benchmarks: small ones for the front end, and larger ones that kernels are measured with."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.compilers import ROOT  # noqa: F401  puts examples/ on the path

from . import classic, perception, sized, text
from .case import Case

from models.catalogue import EXAMPLES  # isort: skip


def of_example(name: str) -> Callable[[], Case]:
    """An example model as a case."""

    def build() -> Case:
        example = EXAMPLES[name]()
        return Case(example.model, tuple(example.inputs), loss=example.loss)

    return build


ZOO: dict[str, Callable[[], Case]] = {
    **{f"example:{name}": of_example(name) for name in EXAMPLES},
    **text.CASES,
    **perception.CASES,
}

MEASURED: dict[str, Callable[[], Case]] = {
    **{name: of_example(name) for name in EXAMPLES},
    **classic.CASES,
    **sized.CASES,
}
