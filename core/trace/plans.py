"""The rows that plugins provide for a callable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from armature.rules.data import Verdict
from armature.trace.handlers import Handler, Polyfill

if TYPE_CHECKING:
    from armature.plugins.tables import Tables


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
    def takes_precedence(self) -> bool:
        """Whether anything is consulted before the interpreter's defaults and the rules."""
        return bool(self.handlers) or self.polyfill is not None or self.first is not None


@attrs.define(eq=False)
class Knowledge:
    """The rows that plugins provide. asked: callables whose verdicts the compiled code depends on."""

    tables: Tables
    asked: dict[int, object]
    _plans: dict[int, Plan] = attrs.field(factory=dict)

    def verdict(self, fn: object) -> Verdict:
        """The rules' verdict on a callable. The lookup is recorded, because the compiled code depends on the answer."""
        self.asked[id(fn)] = fn
        return self.tables.rule_book.verdict(fn)

    def plan_of(self, fn: object) -> Plan:
        """The rows for a callable, looked up once."""
        known = self._plans.get(id(fn))
        if known is None:
            known = self._plans[id(fn)] = self._plan_for(fn)
        return known

    def has_handler(self, fn: object) -> bool:
        """Whether a handler or a polyfill exists for a callable."""
        plan = self.plan_of(fn)
        return bool(plan.handlers) or plan.polyfill is not None

    def goes_first(self, fn: object) -> bool:
        """Whether a handler, a polyfill, or a rule that precedes them, exists for a callable."""
        return self.plan_of(fn).takes_precedence

    def _plan_for(self, fn: object) -> Plan:
        """A rule whose priority is higher than those of handler and polyfill takes precedence over them."""
        handlers, polyfill = self.tables.handlers_of(fn), self.tables.polyfill(fn)
        verdict = self.verdict(fn)
        least = max(0, 0 if polyfill is None else polyfill.priority, *(row.priority for row in handlers))
        return Plan(fn, handlers, polyfill, verdict if verdict.priority > least else None)
