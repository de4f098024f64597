"""The rows that plugins provide for a callable."""

from __future__ import annotations

from typing import Any

import attrs

from armature.rules.data import Verdict
from armature.trace.handlers import Handler, Polyfill


@attrs.frozen(eq=False)
class Plan:
    """The rows that plugins provide for a callable. It holds `fn`, so that its id stays unique.

    `first`: a rule that is consulted before everything else. handlers: asked in order until one answers.
    """

    fn: Any
    handlers: tuple[Handler, ...]
    polyfill: Polyfill | None
    first: Verdict | None = None

    @property
    def speaks(self) -> bool:
        """Whether anything is consulted before the interpreter's defaults and the rules."""
        return bool(self.handlers) or self.polyfill is not None or self.first is not None
