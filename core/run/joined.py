"""One callable for the parts of a group: generated functions, calls of torch's, and memory that only they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import torch

from armature.codegen.alternatives import Alternative, GroupSpec, LibrarySpec

Launch: TypeAlias = Callable[..., None]


def library_launch(spec: LibrarySpec) -> Launch:
    """The call of torch."""
    module = ModuleType(spec.name)
    vars(module)["torch"] = torch
    exec(compile(spec.text, f"<armature {spec.name}>", "exec"), vars(module))
    launch: Launch = getattr(module, spec.name)
    return launch


def in_order(group: GroupSpec | Alternative, launches: Sequence[Launch], device: torch.device) -> Launch:
    """One callable for all parts of a group; it allocates the workspaces, which are freed after the call."""
    if len(launches) == 1 and not isinstance(group.parts[0].spec, LibrarySpec) and not group.workspaces:
        return launches[0]
    steps = [(launch, part.arguments) for launch, part in zip(launches, group.parts, strict=True)]
    workspaces = [
        (name, eval(size) if isinstance(size, str) else size, dtype) for name, size, dtype in group.workspaces
    ]

    def launch(*args: object) -> None:
        made = {
            name: torch.empty(size if isinstance(size, int) else size(*args), dtype=dtype, device=device)
            for name, size, dtype in workspaces
        }
        for step, positions in steps:
            step(*[args[p] if isinstance(p, int) else made[p] for p in positions])

    return launch


def launches_of(group: GroupSpec | Alternative, launch_of: Callable[[Any], Launch]) -> list[Launch]:
    """A callable per part; `launch_of` gives that of a generated function."""
    return [
        library_launch(part.spec) if isinstance(part.spec, LibrarySpec) else launch_of(part.spec)
        for part in group.parts
    ]


def join(
    groups: Sequence[GroupSpec], launch_of: Callable[[Any], Launch], place: Callable[[GroupSpec], torch.device]
) -> dict[str, Launch]:
    """A callable per kernel of the plan; `place` tells where a group's workspaces are."""
    return {group.name: in_order(group, launches_of(group, launch_of), place(group)) for group in groups}
