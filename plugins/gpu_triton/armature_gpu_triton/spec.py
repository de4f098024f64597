"""The data for building and launching a generated kernel, besides its text; picklable."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:
    import torch  # compiler processes import this module too, and start faster without that import

MOST_ARGUMENTS = 250  # limit per kernel: below the launcher's (MAX_ARGS)


@attrs.frozen
class KernelSpec:
    """One Triton function.

    signature: Triton type per argument, "*fp32", "i64" or "fp64". aligned: positions of pointers assumed to be
    multiples of 16 bytes. constants: tile sizes. grid: the number of programs, a tuple of three numbers; with symbolic
    sizes, the text of a Python lambda over the arguments that returns it. device: index, None for the current one.
    asserts: the kernel checks indices, and traps if one is out of range.
    """

    name: str
    signature: tuple[str, ...]
    aligned: tuple[int, ...]
    constants: tuple[tuple[str, int], ...]
    grid: tuple[int, int, int] | str
    num_warps: int = 4
    num_stages: int = 2
    device: int | None = None
    asserts: bool = False

    def unaligned(self) -> KernelSpec:
        """The same kernel without any assumption about pointers."""
        return attrs.evolve(self, aligned=())


@attrs.frozen
class LibrarySpec:
    """A call of torch. text: a Python function of that name, of tensors and ints, that uses only `torch`."""

    name: str
    text: str


@attrs.frozen
class Part:
    """A launch within a group: the function, and the origin of each argument.

    An argument is a position among the group's own arguments, or the name of one of its workspaces.
    """

    spec: KernelSpec | LibrarySpec
    arguments: tuple[int | str, ...]


Workspace: TypeAlias = (
    "tuple[str, int | str, torch.dtype]"  # name, elements (the text of a lambda over the arguments), dtype
)


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
