"""What building and launching a generated kernel needs besides its text: plain data that can be pickled."""

from __future__ import annotations

import attrs
import torch

MOST_ARGUMENTS = 250  # of one kernel: below what the launcher takes (MAX_ARGS)


@attrs.frozen
class KernelSpec:
    """One Triton function.

    signature: Triton type per argument, "*fp32" or "i64". aligned: positions of pointers taken to be multiples of 16
    bytes. constants: tile sizes. grid: how many programs, a tuple of three numbers; where sizes are symbolic, the text
    of a Python lambda over the arguments that gives one. device: index, None for the current one. asserts: the kernel
    checks indices, and traps where one is out of range.
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
class Part:
    """A launch within a group: the function, and where each of its arguments comes from.

    An argument is a position among the group's own arguments, or the name of one of its workspaces.
    """

    spec: KernelSpec
    arguments: tuple[int | str, ...]


@attrs.frozen
class GroupSpec:
    """What one kernel of the plan became: parts in order, and the memory that only they use (elements, dtype)."""

    name: str
    parts: tuple[Part, ...]
    workspaces: tuple[tuple[str, int, torch.dtype], ...] = ()
    device: int | None = None
