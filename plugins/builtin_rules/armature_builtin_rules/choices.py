"""What `min` or `max` chooses among numbers and 0-d tensors, before tracing knows which of them it is."""

from __future__ import annotations

import operator
from typing import ClassVar, NoReturn

import attrs
import torch

from armature.plugin_api import Args, ConstantValue, Kwargs, Rebuilding, TracedTensor, Tracing, TupleValue, Value


@attrs.define(eq=False)
class ChoiceValue(Value):
    """One of several numbers and tensors, at a position that the graph computes.

    Operators and functions of tensors take it as a tensor, which is the same to them; the program gets the object that
    was chosen. Whatever depends on which kind of object it is breaks the graph. test: the call, for reports.
    """

    options: TupleValue
    position: TracedTensor
    tracer: Tracing
    test: str

    mutable: ClassVar[bool] = True
    slots = frozenset({"__bool__"})

    def contents(self) -> object:
        return (self.options, self.position)

    def python_type(self) -> type:
        self.unknown()

    def unknown(self) -> NoReturn:
        """Break the graph where it matters which object it is."""
        self.tracer.graph_break("data-dependent-branch", test=self.test)

    def as_constant(self) -> NoReturn:
        self.unknown()

    def describe(self) -> str:
        return f"the choice of `{self.test}`"

    def truth(self, tracer: Tracing) -> bool:
        self.unknown()

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        self.unknown()

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        self.unknown()

    def as_tensor(self) -> Value:
        """The chosen number, also of a tensor that was written to meanwhile."""
        call = self.tracer.graph.call
        made = self.options.items[0]
        for place, option in enumerate(self.options.items[1:], 1):
            here = call(operator.eq, (self.position, ConstantValue(place)), {})
            made = call(torch.where, (here, option, made), {})
        return made

    def as_argument(self, tracer: Tracing) -> object:
        return self.as_tensor().as_argument(tracer)

    def as_fake(self, tracer: Tracing) -> object:
        return self.as_tensor().as_fake(tracer)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(operator.getitem)
        out.load(self.options)
        out.load(self.position)
        out.call(2)
