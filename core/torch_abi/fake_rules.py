"""What plugins tell of operators whose meta functions differ from their kernels, as the fake mode asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import torch

from armature.torch_abi.fake_layouts import Rule, of_pointwise

NONE: Mapping[Any, Any] = MappingProxyType({})


@attrs.frozen(eq=False)
class FakeRules:
    """Rules by operator. relaid: gives the results the layout of the kernel's. takes: whether the kernel takes
    arguments. rewritten: the same arguments in a form that the meta function treats rightly."""

    relaid: Mapping[Any, Rule] = NONE
    takes: Mapping[Any, Callable[[Sequence[Any]], bool]] = NONE
    rewritten: Mapping[Any, Callable[[Sequence[Any]], Sequence[Any]]] = NONE

    def layout_of(self, op: Any) -> Rule | None:
        """The correction of an operator's layouts; None if torch is right."""
        return self.relaid.get(op) or of_pointwise(op)

    def understood(self, op: Any, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments of an operator in the form that its meta function treats rightly."""
        write = self.rewritten.get(op)
        return args if write is None else write(args)

    def check_operands(self, op: Any, args: Sequence[Any]) -> None:
        """Raise RuntimeError if the kernel of an operator refuses its arguments because of their dtypes or sizes. The
        call then breaks the graph, and the kernel reports the error."""
        takes = self.takes.get(op)
        if takes is not None and not takes(args):
            kinds = ", ".join(f"{one.dtype}{list(one.shape)}" for one in args if isinstance(one, torch.Tensor))
            raise RuntimeError(f"{op} does not take tensors of {kinds} together")


NO_RULES = FakeRules()
