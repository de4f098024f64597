"""The ways in which a back end can compute a kernel of the plan: generated functions and calls of torch's, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs
import torch

from armature.codegen.printer import PYTHON_INDEX
from armature.lower.data import Buffer
from armature.lower.index import hint, mul, numel, sub
from armature.schedule.data import Kernel


class Function(Protocol):
    """What a part calls; hashable. A back end has a class of its own for functions that it generates."""

    @property
    def name(self) -> str: ...


class Step(Protocol):
    """What is computed with some of a kernel's arguments and workspaces."""

    @property
    def arguments(self) -> tuple[str, ...]: ...


@attrs.frozen
class LibrarySpec:
    """A call of torch. text: a Python function of that name, of tensors and ints, that uses only `torch`."""

    name: str
    text: str

    @property
    def without_name(self) -> str:
        """The text below the line with the name."""
        return self.text.partition("\n")[2]


@attrs.frozen
class Part:
    """A launch within a group: the function, and the origin of each argument.

    An argument is a position among the group's own arguments, or the name of one of its workspaces.
    """

    spec: Function
    arguments: tuple[int | str, ...]


Workspace: TypeAlias = tuple[str, "int | str", torch.dtype]
"""Name, elements (the text of a lambda over the arguments), dtype."""


@attrs.frozen
class Alternative:
    """A way to compute a kernel of the plan. label: unique in its group, for reports and stored choices."""

    label: str
    parts: tuple[Part, ...]
    workspaces: tuple[Workspace, ...] = ()


@attrs.frozen
class ArgumentSpec:
    """An argument of a call: a tensor of `dtype` whose memory has this many elements, or, without a dtype, the number
    itself. Symbolic sizes are at their hints. by_value: a tensor of the CPU, whose only element is passed."""

    dtype: torch.dtype | None
    size: int
    by_value: bool = False


@attrs.frozen
class GroupSpec:
    """The functions made from one kernel of the plan: parts in order, and the memory that only they use.

    alternatives: ways to compute the same result, of which the fastest is chosen; the first one is the choice of the
    rules, and is in `parts`. arguments: those of a call, if there are alternatives.
    """

    name: str
    parts: tuple[Part, ...]
    workspaces: tuple[Workspace, ...] = ()
    device: int | None = None
    alternatives: tuple[Alternative, ...] = ()
    arguments: tuple[ArgumentSpec, ...] = ()

    def taking(self, chosen: Alternative) -> GroupSpec:
        """The group with the given alternative chosen."""
        return attrs.evolve(self, parts=chosen.parts, workspaces=chosen.workspaces)


def of_arguments(text: str, kernel: Kernel) -> str:
    """A lambda over the kernel's arguments for an expression over its sizes."""
    pointers = len(kernel.reads) + len(kernel.writes)
    names = [*(f"_{n}" for n in range(pointers)), *(s.name for s in kernel.sizes)]
    return f"lambda {', '.join(names)}: {text}"


def elements(buffer: Buffer, kernel: Kernel) -> int | str:
    """Elements of a workspace; the text of a lambda over the kernel's arguments if they depend on sizes."""
    total = numel(buffer.shape)
    return total if isinstance(total, int) else of_arguments(PYTHON_INDEX.print(total), kernel)


def parts_of(
    kernel: Kernel,
    steps: Sequence[Step],
    specs: Sequence[Function],
    workspaces: Mapping[str, Buffer],
) -> tuple[tuple[Part, ...], tuple[Workspace, ...]]:
    """Parts that take their arguments from those of the kernel that they replace, and the memory that only they use."""
    positions: dict[str, int | str] = {n: at for at, n in enumerate(kernel.arguments)}
    positions.update((name, name) for name in workspaces)
    parts = tuple(
        Part(spec, tuple(positions[n] for n in part.arguments)) for part, spec in zip(steps, specs, strict=True)
    )
    return parts, tuple((n, elements(b, kernel), b.dtype) for n, b in workspaces.items())


def given_of(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[ArgumentSpec, ...]:
    """Describe the arguments that a launch of the kernel passes."""
    found: list[ArgumentSpec] = []
    for name in (*kernel.reads, *kernel.writes):
        buffer = buffers[name]
        last = sum(hint(mul(sub(size, 1), step)) for size, step in zip(buffer.shape, buffer.strides, strict=True))
        size = last + 1 + hint(buffer.offset)
        found.append(ArgumentSpec(buffer.dtype, size, by_value=buffer.device.type != kernel.device.type))
    return (*found, *(ArgumentSpec(None, size.hint) for size in kernel.sizes))
