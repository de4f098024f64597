"""What plugins say of a callable."""

from __future__ import annotations

from typing import Any

import attrs

from armature.rules.data import Verdict
from armature.trace.handlers import Handler, Polyfill


@attrs.frozen(eq=False)
class Plan:
    """What plugins say of a callable. Holding it keeps its id its own. `first`: a rule that goes before all else.

    handlers: each is asked where those before it decline.
    """

    fn: Any
    handlers: tuple[Handler, ...]
    polyfill: Polyfill | None
    first: Verdict | None = None

    @property
    def speaks(self) -> bool:
        """Whether there is anything to ask before the interpreter's own ways and the rules."""
        return bool(self.handlers) or self.polyfill is not None or self.first is not None
