"""Plugins' corrections for operators whose meta functions differ from their kernels, indexed for the fake mode."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import torch

from armature.torch_abi import probes
from armature.torch_abi.fake_layouts import AS_TENSORS_SAY, Rule, as_first, of_pointwise
from armature.torch_abi.fake_results import CachedResult
from armature.torch_abi.operators import writes_of_schema

NONE: Mapping[Any, Any] = MappingProxyType({})


class AxesOfOne(enum.Enum):
    """Whether a meta function's strides along axes of size 1 are those of the kernel. Most code ignores these strides,
    so torch's meta functions often choose others.

    OWN: they are, whatever the arguments. GIVEN: they are, if the arguments have the strides of the real tensors.
    GUESSED: they may not be.
    """

    OWN = "own"
    GIVEN = "given"
    GUESSED = "guessed"


class FakeResult(enum.Enum):
    """Why an operator is not run on fakes. WRONG: its meta function gives another kind of tensor. UNSIZED: the size of
    its result depends on values, which its tags do not say."""

    WRONG = "wrong"
    UNSIZED = "unsized"


@attrs.frozen(eq=False)
class Facts:
    """Everything that the fake mode needs to know of one operator. refused: returns the kernel's error for the
    arguments of a call, if a kernel has to be tried. in_mode: whether `relaid` is called in the fake mode. draws:
    whether it draws random numbers. writes: the positions of the arguments that a call writes to, if it may write to
    any."""

    fake: FakeResult | None
    takes: Callable[[Sequence[Any]], bool] | None
    rewritten: Callable[[Sequence[Any]], Sequence[Any]] | None
    relaid: Rule | None
    in_mode: bool
    refused: probes.Probe | None
    draws: bool
    writes: Callable[[Sequence[Any]], Iterable[int]] | None
    axes_of_one: AxesOfOne


@attrs.frozen(eq=False)
class FakeRules:
    """Rules by operator. relaid: gives the results the layout of the kernel's. takes: whether the kernel takes
    arguments. rewritten: the same arguments in a form for which the meta function is right. probed: how to find out
    which arguments a kernel accepts. writes: the positions of the arguments that a call writes to, where the schema
    does not say. results: of calls so far, by the key of the call; None: has to be computed."""

    relaid: Mapping[Any, Rule] = NONE
    takes: Mapping[Any, Callable[[Sequence[Any]], bool]] = NONE
    rewritten: Mapping[Any, Callable[[Sequence[Any]], Sequence[Any]]] = NONE
    axes_of_one: Mapping[Any, AxesOfOne] = NONE
    fakes: Mapping[Any, FakeResult] = NONE
    probed: Mapping[Any, probes.Probed] = NONE
    writes: Mapping[Any, Callable[[Sequence[Any]], Iterable[int]]] = NONE
    results: dict[Any, CachedResult | None] = attrs.field(factory=dict, init=False, repr=False)
    _facts: dict[Any, Facts] = attrs.field(factory=dict, init=False, repr=False)

    def layout_of(self, op: Any) -> Rule | None:
        """The correction of an operator's layouts; None if torch is right."""
        return self.relaid.get(op) or of_pointwise(op)

    def of(self, op: torch._ops.OpOverload) -> Facts:
        """The facts about an operator, collected on first use."""
        known = self._facts.get(op)
        if known is None:
            relaid = self.layout_of(op)
            known = self._facts[op] = Facts(
                fake=self.fakes.get(op),
                takes=self.takes.get(op),
                rewritten=self.rewritten.get(op),
                relaid=relaid,
                in_mode=relaid not in AS_TENSORS_SAY,
                refused=probes.of_operator(op, self.probed.get(op)),
                draws=torch.Tag.nondeterministic_seeded in op.tags,
                writes=self.writes.get(op) or writes_of_schema(op),
                axes_of_one=self._axes_of_one(op),
            )
        return known

    def _axes_of_one(self, op: torch._ops.OpOverload) -> AxesOfOne:
        """The plugin's statement if there is one. Else views, elementwise operators and factory functions are GIVEN,
        because their strides follow from those of the arguments, as in kernels."""
        told = self.axes_of_one.get(op)
        if told is not None:
            return told
        creates = not any("Tensor" in str(argument.type) for argument in op._schema.arguments)
        rule = self.layout_of(op)
        elementwise = torch.Tag.pointwise in op.tags and rule is not None
        follows = creates or op.is_view or rule is as_first or elementwise
        return AxesOfOne.GIVEN if follows else AxesOfOne.GUESSED


def check_operands(takes: Callable[[Sequence[Any]], bool], op: Any, args: Sequence[Any]) -> None:
    """Raise RuntimeError if the kernel of an operator refuses its arguments because of their dtypes or sizes. The call
    then breaks the graph, and the kernel reports the error."""
    if not takes(args):
        kinds = ", ".join(f"{one.dtype}{list(one.shape)}" for one in args if isinstance(one, torch.Tensor))
        raise RuntimeError(f"{op} does not take tensors of {kinds} together")


NO_RULES = FakeRules()
