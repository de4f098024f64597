"""The explicit context of a stage: everything it may use besides its input. Made by `pipeline` for each compilation.

Passes of plugins and back ends see it as `armature.services.Services`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    import torch

    from armature.config import Config
    from armature.events import CompileEvent
    from armature.graph.data import PassRun
    from armature.graph.facts import Operator
    from armature.plugins.tables import Tables
    from armature.run.cache import Cache
    from armature.run.timeline import Timeline
    from armature.run.workers import Workers
    from armature.torch_abi.functions import Functions


@attrs.define(eq=False)
class CompileContext:
    """Settings, tables and services of one compilation.

    tables: rows of all plugins (frozen snapshot). cache: content-addressed store of built kernels. workers: pool that
    builds kernels. emit: sends an event to observers. compile_id counts compilations of this process. asked: callables
    that plugins were asked about, by id. users_backend: whether a user's function makes what runs the graph. timeline:
    records each run of a graph or kernel; None: not recorded. passes: those that have run, if recorded. shared_choices:
    store of measured choices, if not `cache`. device_backend
    comes from `tables.device_backend(device_type)`.
    """

    config: Config
    tables: Tables
    cache: Cache
    workers: Workers
    compile_id: int
    events: list[CompileEvent] = attrs.field(factory=list)
    asked: dict[int, object] = attrs.field(factory=dict)
    users_backend: bool = False
    timeline: Timeline | None = None
    passes: list[PassRun] = attrs.field(factory=list)
    shared_choices: Cache | None = None

    @property
    def choices(self) -> Cache:
        """Store of choices between kernels that were measured."""
        return self.cache if self.shared_choices is None else self.shared_choices

    @property
    def operators(self) -> Mapping[Any, Operator]:
        """The facts that plugins state about operators."""
        return self.tables.operators

    @property
    def functions(self) -> Functions:
        """The facts that plugins state about the functions that captured graphs call."""
        return self.tables.functions

    def emit(self, event: CompileEvent) -> None:
        """Record the event and tell observers."""
        self.events.append(event)
        self.tables.observe_compile(event)

    def lowered(self, op: torch._ops.OpOverload) -> bool:
        """Whether a plugin has a lowering for the operator; it may still decline, leaving an ATen call."""
        return bool(self.tables.lowering_chain(op))

    def draws(self, device_type: str) -> bool:
        """Whether kernels for this type of device compute random numbers themselves."""
        backend = self.tables.device_backend(device_type)
        return backend is not None and backend.features.random is not None

    def recurrent(self, device_type: str) -> frozenset[torch.dtype]:
        """The dtypes of recurrent layers that are loops over time on this type of device."""
        backend = self.tables.device_backend(device_type)
        recurrence = None if backend is None else backend.features.recurrence
        return frozenset() if recurrence is None or not self.config.own_products else recurrence.dtypes()
