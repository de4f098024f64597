"""A stand-in for the current device of an accelerator, where there is none."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import attrs
import pytest


@attrs.define(eq=False)
class CurrentDevice:
    """Every device of the modules that use it counts as number `own`. index: the current one."""

    own: int = 1
    index: int = 0

    def on_device(self, index: int, function: Callable[..., Any], *args: Any) -> Any:
        """Like that of `armature.torch_abi.devices`."""
        before, self.index = self.index, index
        try:
            return function(*args)
        finally:
            self.index = before

    def stand_in(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let a module that has imported the functions use these."""
        monkeypatch.setattr(module, "index_of", lambda device: self.own)
        monkeypatch.setattr(module, "current_index", lambda: self.index)
        monkeypatch.setattr(module, "on_device", self.on_device)
