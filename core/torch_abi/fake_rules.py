"""What plugins tell of operators whose meta functions differ from their kernels, as the fake mode asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from armature.torch_abi.fake_layouts import Rule, of_pointwise

NONE: Mapping[Any, Any] = MappingProxyType({})


@attrs.frozen(eq=False)
class FakeRules:
    """Rules by operator. relaid: gives the results the layout of the kernel's."""

    relaid: Mapping[Any, Rule] = NONE

    def layout_of(self, op: Any) -> Rule | None:
        """The correction of an operator's layouts; None if torch is right."""
        return self.relaid.get(op) or of_pointwise(op)


NO_RULES = FakeRules()
