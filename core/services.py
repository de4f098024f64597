"""The interface of the compilation for passes of plugins and back ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from armature.config import Config
    from armature.events import CompileEvent
    from armature.graph.facts import Operator
    from armature.run.cache import Cache
    from armature.run.workers import Workers
    from armature.torch_abi.functions import Functions


class Services(Protocol):
    """Settings and services of one compilation.

    config: the settings in force. cache: content-addressed store of built kernels. workers: pool that builds kernels.
    compile_id counts compilations of this process.
    """

    @property
    def config(self) -> Config: ...

    @property
    def cache(self) -> Cache: ...

    @property
    def workers(self) -> Workers: ...

    @property
    def compile_id(self) -> int: ...

    @property
    def operators(self) -> Mapping[Any, Operator]:
        """The facts that plugins state about operators."""

    @property
    def functions(self) -> Functions:
        """The facts that plugins state about the functions that captured graphs call."""

    def emit(self, event: CompileEvent) -> None:
        """Record the event and tell observers."""

    @property
    def choices(self) -> Cache:
        """Store of choices between kernels that were measured: `Config.choices_dir`, or the one of built kernels."""

    def lowered(self, op: torch._ops.OpOverload) -> bool:
        """Whether a plugin has a lowering for the operator; it may still decline, leaving an ATen call."""

    def draws(self, device_type: str) -> bool:
        """Whether kernels for this type of device compute random numbers themselves."""

    def recurrent(self, device_type: str) -> frozenset[torch.dtype]:
        """The dtypes of recurrent layers that are loops over time on this type of device."""
