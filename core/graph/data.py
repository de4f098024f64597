"""What the graph stage gives: one functional ATen graph, and the passes that change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import fx

if TYPE_CHECKING:
    from armature.services import Services


@attrs.frozen
class Origin:
    """The user's line and the ATen operator that a statement comes from.

    node: the node of the ATen graph, once it is lowered. It is not compared: kernels of equal text are built once.
    """

    op: str  # "aten.add.Tensor"
    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""  # the source line, stripped
    node: str = attrs.field(default="", eq=False)


class GraphKind(Enum):
    """Which part of the program the graph is."""

    INFERENCE = "inference"
    FORWARD = "forward"
    BACKWARD = "backward"


@attrs.frozen(eq=False)
class AtenGraph:
    """A functional graph of ATen operators after decomposition. Each node has `meta["val"]` (fake tensor or SymInt),
    and
    `meta["origin"]` (`Origin`: the user's line). Its only mutations are `aten.copy_` into inputs at its end.
    """

    name: str
    kind: GraphKind
    module: fx.GraphModule
    fake_inputs: tuple[object, ...]  # FakeTensor, SymInt or int, one per placeholder
    static_inputs: frozenset[int] = frozenset()  # positions whose address does not change between calls (parameters)


@attrs.frozen(eq=False)
class Split:
    """A captured graph from which gradients are wanted, and where it is to be cut into pieces, each with a backward
    graph of its own. `module` is not to be changed. `parameters`: those of the program behind placeholders of the
    graph. `cuts`: nodes each of which begins a piece; a cut may end up before an earlier node.
    """

    module: fx.GraphModule
    parameters: Mapping[fx.Node, torch.nn.Parameter]
    cuts: frozenset[fx.Node] = frozenset()


STAGES = ("split", "pre_grad", "joint", "post_grad", "loops", "kernels")


@attrs.frozen
class Pass:
    """A pass of the pipeline. `stage`: split runs on Split; pre_grad, joint and post_grad on fx.GraphModule; loops on
    LoopGraph; kernels on KernelPlan. `run` returns the changed (or same) object. `before` and `after` name other passes
    of the stage. In post_grad, `module.meta["kind"]` says which `GraphKind` the module is.
    """

    name: str
    stage: str = attrs.field(validator=attrs.validators.in_(STAGES))
    run: Callable[[object, Services], object]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@attrs.frozen
class PassRun:
    """A pass that has run, and what it found and left, as text."""

    stage: str
    name: str
    plugin: str
    before: str
    after: str


@attrs.frozen
class Decomposition:
    """Replaces `op` by what `fn` (same signature, on tensors) calls, while the ATen graph is traced."""

    op: torch._ops.OpOverload
    fn: Callable[..., object]
    priority: int = 0


@attrs.frozen
class Lowering:
    """Turns a call of `op` into loops: `fn(builder, *args, **kwargs)`, see `armature.lower.builder.Builder`.

    Returning None means "not in this case": the operator stays an ATen call. `armature.plugin_api.CallInstead(run)`
    has `run` called in its place, with the same arguments and results.
    """

    op: torch._ops.OpOverload
    fn: Callable[..., object]
    priority: int = 0


@attrs.frozen
class Operator:
    """What the schema of an operator doesn't tell, and neither does torch's rule for tensors without numbers.

    function: takes the same arguments and gives the same results as the operator, and is shorter to call.
    lies_as_told: the results always have the strides that the rule for tensors without numbers gives them; those of
    other operators are looked at each time that the operator has run.
    relaid: called as `relaid(args, result)` with tensors without numbers while code is traced; gives the result with
    the strides that the operator's kernels give it, where torch's own rule says others.
    """

    op: torch._ops.OpOverload
    function: Callable[..., Any] | None = None
    lies_as_told: bool = False
    relaid: Callable[[Sequence[Any], Any], Any] | None = None
    priority: int = 0
