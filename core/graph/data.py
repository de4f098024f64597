"""The result of the graph stage: functional ATen graphs, and the passes that transform them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    node: the node of the ATen graph, once it is lowered. It is not compared, because kernels of equal text are built
    once.
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
    and `meta["origin"]` (`Origin`: the user's line). Its only mutations are `aten.copy_` into inputs at its end."""

    name: str
    kind: GraphKind
    module: fx.GraphModule
    fake_inputs: tuple[object, ...]  # FakeTensor, SymInt or int, one per placeholder
    static_inputs: frozenset[int] = frozenset()  # positions whose address does not change between calls (parameters)
    spare_inputs: frozenset[int] = frozenset()  # positions of tensors that usually nobody else holds
    shared_inputs: tuple[frozenset[int], ...] = ()  # groups of positions: tensors in one memory that nobody else holds
    ahead: bool = False  # whether it is a backward graph compiled before its first call, which waits for its kernels


@attrs.frozen(eq=False)
class Split:
    """A captured training graph, and where to cut it into pieces, each with a backward graph of its own.

    `module` must not be changed. `parameters`: the program's parameters behind placeholders of the graph. `cuts`: nodes
    that each begin a piece; a cut may be moved to an earlier node.
    """

    module: fx.GraphModule
    parameters: Mapping[fx.Node, torch.nn.Parameter]
    cuts: frozenset[fx.Node] = frozenset()


@attrs.frozen(eq=False)
class GraphCall:
    """A call, in a captured graph, of an operator that takes graphs. It runs between compiled parts of the graph.

    args: the operator's arguments: fake tensors, numbers, `fx.GraphModule`s, and tuples of these. gradients: whether
    the results may need a derivative.

    expression: `expression(module, examples, given, derivative=False)` turns a graph of numbers into an
    `armature.backend_api.Expression`, or returns None. examples: for each input of the graph, a tensor like it.
    given: by position, the nodes that stand for some inputs. derivative: also return the gradient of the first input
    as a second value; the result's gradient is then the last input.
    """

    op: object
    args: tuple[Any, ...]
    gradients: bool
    expression: Callable[..., Any]


STAGES = ("split", "pre_grad", "joint", "post_grad", "loops", "kernels")


@attrs.frozen
class Pass:
    """A pass of the pipeline. `stage`: split runs on Split; pre_grad, joint and post_grad on fx.GraphModule; loops on
    LoopGraph; kernels on KernelPlan. `run` returns the changed (or same) object. `before` and `after` name other passes
    of the stage. In post_grad, `module.meta["kind"]` says which `GraphKind` the module is."""

    name: str
    stage: str = attrs.field(validator=attrs.validators.in_(STAGES))
    run: Callable[[object, Services], object]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@attrs.frozen
class PassRun:
    """A pass that has run, with its input and output as text."""

    stage: str
    name: str
    plugin: str
    before: str
    after: str


@attrs.frozen
class Decomposition:
    """Replaces `op`, while the ATen graph is traced, by the operators that `fn` calls (same signature, on tensors)."""

    op: torch._ops.OpOverload
    fn: Callable[..., object]
    priority: int = 0


@attrs.frozen
class Lowering:
    """Turns a call of `op` into loops: `fn(builder, *args, **kwargs)`, see `armature.lower.builder.Builder`.

    Returning None declines: the operator stays an ATen call. Returning `armature.plugin_api.CallInstead(run)` has
    `run` called in place of the operator, with the same arguments and results.
    """

    op: torch._ops.OpOverload
    fn: Callable[..., object]
    priority: int = 0
