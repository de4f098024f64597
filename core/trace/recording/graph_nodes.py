"""Calls that become nodes of the graph: run once on fake tensors, recorded with the user's line."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import fx

from armature import interrupts
from armature.torch_abi import casts
from armature.torch_abi.altering import set_data_
from armature.torch_abi.effects import CHECK
from armature.torch_abi.fake import (
    DATA_DEPENDENT,
    DYNAMIC_SHAPE,
    UNSUPPORTED_OPERATOR,
    NumberRead,
    enable_python_dispatcher,
    reads_numbers,
)
from armature.torch_abi.grad_modes import CHANGED_BY, with_default_dtype
from armature.torch_abi.operators import by_position
from armature.torch_abi.symbols import SYMBOLIC, is_unbacked
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.base import Args, Kwargs, Value
from armature.trace.break_ids import OPERATOR_ERROR, OPERATOR_ERRORS
from armature.trace.bytecode.instructions import may_catch
from armature.trace.data import HANDLED, LEAVE
from armature.trace.errors import GraphBreak
from armature.trace.handlers import number_asked
from armature.trace.recording import folding, mutation, tensor_state, torch_function, wrapper_subclasses
from armature.trace.recording.mutation import IN_PLACE_OPERATORS, method_name, of_torch
from armature.trace.values.computed import real_power
from armature.trace.values.constant import is_atom
from armature.trace.values.floats import FloatValue
from armature.trace.values.precomputed import as_tensors
from armature.trace.values.sequence import ListValue, TupleValue, leaves
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.torch_abi.functions import Functions
    from armature.trace.base import Recorder, Tracing
    from armature.trace.stack import Breaks

Called: TypeAlias = Callable[..., Any] | str  # a function, or the name of a method
NUMERIC = frozenset({min, max, abs, round, sum, real_power})
# `x.__iadd__(y)` and the like change `x`, but only the operators are known to.
BY_OPERATOR: dict[str, Callable[..., Any]] = {
    "__idiv__": operator.itruediv,
    **{f"__{fn.__name__}__": fn for fn in IN_PLACE_OPERATORS if fn is not operator.setitem},
}
OPERATORS = frozenset(vars(operator)[name] for name in operator.__all__) - IN_PLACE_OPERATORS | NUMERIC
PURE = OPERATORS | IN_PLACE_OPERATORS | {getattr, set_data_}  # except for their arguments
# Python classes that torch accepts as dtypes; FX would write `<class 'float'>`.
DTYPES: dict[object, torch.dtype] = {
    bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128,
}  # fmt: skip
NOT_A_NAME = re.compile(r"\W+")
# A module stores its members in tables: `self.__dict__['_modules']['fc']` is shown as self.fc.
MODULE_TABLE = re.compile(r"\.__dict__\['_(modules|parameters|buffers)'\]")


def graph_call(
    tracer: Tracing, breaks: Breaks, fn: Called, args: Args, kwargs: Kwargs, fake: Callable[..., Any] | None = None
) -> Value:
    """Record a call. Returns a tensor, a nest of tensors, or a constant that the fake run determines (then without a
    node).

    `fake`: run on the fakes in place of `fn`.
    """
    fn = operator.matmul if fn is operator.imatmul else fn  # tensors have no `@=`, but FX would write one
    if tracer.overrides.present:
        found = torch_function.in_graph(tracer, fn, args, kwargs)
        if found is not None:
            return found
    fn, args, kwargs = in_graphs_terms(tracer, fn, args, kwargs)
    found = _of_numbers(tracer, breaks.tables.functions, fn, args, kwargs)
    found = found or folding.compile_time_answer(tracer, fn, args, kwargs)
    if found is not None:
        return found
    if fake is None and not isinstance(fn, str) and of_torch(fn):
        folding.check_may_run(tracer, fn, args, kwargs)
    return _recorded(tracer, breaks, fn, args, kwargs, fake)


def _of_numbers(tracer: Tracing, functions: Functions, fn: Called, args: Args, kwargs: Kwargs) -> Value | None:
    """The result of a call with floats or numbers known before the graph; None if it has none or needs their values."""
    state = tracer.overrides
    if (tracer.sizes.floats or tracer.precalls.calls) and not kwargs and not state.present:
        given = as_tensors(tracer, functions, fn, args)
        if given is not None:
            return tracer.graph.call(fn, given, {})
    keeps = tracer.recorder.keeps_floats or tracer.recorder.subgraph_depth or state.has_modes
    if not tracer.sizes.floats or keeps or not takes_floats(functions, fn, args, kwargs):
        return None
    tracer.recorder.keeps_floats = True
    try:
        return tracer.graph.call(fn, args, kwargs)
    except GraphBreak:  # fakes need the numbers
        return None
    finally:
        tracer.recorder.keeps_floats = False


def _recorded(
    tracer: Tracing, breaks: Breaks, fn: Called, args: Args, kwargs: Kwargs, fake: Callable[..., Any] | None
) -> Value:
    """Run a call on the fakes, and add it to the graph unless its result is a constant or a known tensor."""
    arguments = tuple([arg.as_argument(tracer) for arg in args])
    named = {name: value.as_argument(tracer) for name, value in kwargs.items()}
    targets = mutation.written(fn, args, kwargs)
    if targets:
        mutation.check(tracer, breaks.tables.functions, fn, args, kwargs, targets)
    tracer.fakes.take_written()
    given = (*args, *kwargs.values()) if tracer.overrides.wrappers else ()
    held = wrapper_subclasses.holding(value.as_fake(tracer) for value in given)
    try:
        with tracer.fakes.raising_for_numbers(lambda fake: id(fake) in tracer.objects.by_fake):
            result = run_on_fakes(tracer, fake or fn, args, kwargs)
    except NumberRead as asked:
        function = getattr(torch.Tensor, fn) if isinstance(fn, str) else fn
        given = (tracer.objects.by_fake[id(asked.tensor)], *args)
        found = None if fake else tracer.calls.handled_as(number_asked, function, given, kwargs)
        if found is not None:
            return found
        result = run_on_fakes(tracer, fake or fn, args, kwargs)
    wrapper_subclasses.check_unchanged(tracer, held)
    changes = bool(mutation.written_by_call(tracer, args, kwargs) or targets)
    if result is not None and not changes and is_constant_result(result):
        return folding.folded(tracer, fn, args, kwargs, result) if of_torch(fn) else tracer.as_value(result)
    if any(value.is_symbolic for value in (*args, *kwargs.values())):  # the run may have turned them into numbers
        arguments = tuple([arg.as_argument(tracer) for arg in args])
        named = {name: value.as_argument(tracer) for name, value in kwargs.items()}
    known: Value | None = None if changes else tracer.objects.by_fake.get(id(result))
    first = not tracer.recorder.mutates
    tracer.recorder.mutates |= changes
    if known is not None:
        return known  # `x.contiguous()` of a contiguous tensor is `x`
    if fn is operator.pow and not isinstance(arguments[0], fx.Node):
        fn = torch.pow  # FX writes `-1 ** x`, which differs from `(-1) ** x`
    if tracer.effects.chosen_dtype is not None:
        fn = under_default_dtype(tracer, fn, tracer.effects.chosen_dtype)
    node = record(tracer, "call_method" if isinstance(fn, str) else "call_function", fn, arguments, named)
    made = from_fake(tracer, result, node)
    if any(may_catch(frame.instructions, frame.position - 1) for frame in tracer.stack.frames):
        node.meta[HANDLED] = True
    if tracer.recorder.mutates:
        mutation.note_error(tracer, breaks, node, first)
    return made


def in_graphs_terms(tracer: Tracing, fn: Called, args: Args, kwargs: Kwargs) -> tuple[Called, Args, Kwargs]:
    """The call with operators in place of their methods, and its arguments as rewritten by plugins."""
    fn = BY_OPERATOR.get(method_name(fn), fn) if len(args) == 2 and not kwargs else fn
    args, kwargs = by_position(method_name(fn), args, kwargs)
    for rewrite in tracer.recorder.rewrites:
        args, kwargs = rewrite(fn if isinstance(fn, str) else getattr(fn, "__name__", ""), args, kwargs)
    return fn, args, kwargs


def under_default_dtype(tracer: Tracing, fn: Called, chosen: torch.dtype) -> Callable[..., Any]:
    """A function called while the frame has changed the default dtype."""
    if tracer.recorder.subgraph_depth:  # such a graph may run under another default dtype
        tracer.graph_break("default-dtype-in-parts")
    return with_default_dtype(chosen, getattr(torch.Tensor, fn) if isinstance(fn, str) else fn)


def takes_floats(functions: Functions, fn: Called, args: Args, kwargs: Kwargs) -> bool:
    """Whether floats of the program may stay unknown as arguments."""
    if not (functions.takes_any_number(fn) if fn in PURE else of_torch(fn) and not functions.needs_numbers(fn)):
        return False
    values = [leaf for value in (*args, *kwargs.values()) for leaf in leaves(value)]
    dtypes = [value.dtype if isinstance(value, TensorValue) else getattr(value, "value", None) for value in values]
    of_complex = any(isinstance(dtype, torch.dtype) and dtype.is_complex for dtype in dtypes)
    return not of_complex and any(isinstance(value, FloatValue) for value in values)


def run_on_fakes(tracer: Tracing, fn: Called, args: Args, kwargs: Kwargs) -> Any:
    """The function's result on fakes. A failure is a graph break: in eager mode the program sees torch's own error."""
    fakes = [arg.as_fake(tracer) for arg in args]
    named = {name: value.as_fake(tracer) for name, value in kwargs.items()}
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", str(fn))
    # torch's Python implementations preserve symbols where those in C++ ask for numbers; they are slower.
    dispatcher = enable_python_dispatcher() if tracer.sizes.quantities else casts.NOTHING
    asking = wrapper_subclasses.asking([*fakes, *named.values()]) if tracer.overrides.wrappers else casts.NOTHING
    try:
        with dispatcher, asking, casts.shown():
            if isinstance(fn, str):
                return getattr(fakes[0], fn)(*fakes[1:], **named)
            return (tracer.fakes.getitem if fn is operator.getitem else fn)(*fakes, **named)
    except (RecursionError, NumberRead):
        raise
    except DYNAMIC_SHAPE:
        tracer.graph_break("dynamic-shape-operator", operation=name)
    except DATA_DEPENDENT:
        tracer.graph_break("data-dependent-operator", operation=name)
    except UNSUPPORTED_OPERATOR as error:
        tracer.graph_break("operator-without-fake", operation=name, message=error)
    except Exception as error:
        if not any(isinstance(value, TensorValue) for value in (*args, *kwargs.values())) and not of_torch(fn):
            tracer.raise_real(error)
        if reads_numbers(error):
            tracer.graph_break("data-dependent-operator", operation=name)
        kind = OPERATOR_ERRORS.get(type(error), OPERATOR_ERROR)
        tracer.graph_break(kind, operation=name, message=f"{type(error).__name__}: {error}")


def is_constant_result(result: object) -> bool:
    """Whether a fake run's result is a Python object that contains no tensor."""
    if is_atom(result):
        return True
    if isinstance(result, (torch.Size, range)) or (isinstance(result, SYMBOLIC) and not is_unbacked(result)):
        return True
    return isinstance(result, (tuple, list)) and bool(result) and all(is_constant_result(item) for item in result)


def record(tracer: Tracing, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
    """Add a node with the user's line."""
    if of_torch(target):
        args = tuple(as_dtype(arg) for arg in args)
        kwargs = {name: as_dtype(arg) for name, arg in kwargs.items()}
    if any(isinstance(arg, type) for arg in (*args, *kwargs.values())):  # FX would write `<class 'C'>`
        tracer.graph_break("class-as-argument")
    interrupts.check()
    node = tracer.recorder.graph.create_node(kind, target, args, kwargs)
    node.meta["origin"], node.meta["stack_trace"], _ = tracer.stack.origin()
    return node


def as_dtype(argument: object) -> object:
    """The dtype that a Python number class represents; any other argument unchanged."""
    return DTYPES.get(argument, argument) if isinstance(argument, type) else argument


def state_call(
    tracer: Tracing, fn: Callable[..., Any], arguments: tuple[Any, ...], leave: Callable[[Any], Any] | None = None
) -> fx.Node:
    """Add a node for a call that only changes torch's state. leave: takes its result, and restores the state."""
    node = record(tracer, "call_function", fn, arguments, {})
    node.meta["changes_state"] = True
    if leave is not None:
        node.meta[LEAVE] = leave
    return node


def only_computes(recorder: Recorder) -> bool:
    """Whether the graph calls only torch, and changes no torch state that can't be restored."""
    return all(
        LEAVE in node.meta or is_left(node) if "changes_state" in node.meta else is_torchs(node.target)
        for node in recorder.calls()
    )


def is_left(node: fx.Node) -> bool:
    """Whether a node changes state that can be restored without it, or leaves a context that another node enters."""
    return node.target in CHANGED_BY or any(LEAVE in given.meta for given in node.all_input_nodes)


def is_torchs(target: Any) -> bool:
    """Whether the called function is torch's own, and does not involve gradients."""
    target = getattr(target, "in_default_dtype", target)
    if isinstance(target, str):
        return target != "backward"
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return target is CHECK or str(target).startswith("aten.")
    return target is not torch.autograd.backward and (of_torch(target) or target in PURE)


def from_fake(tracer: Tracing, result: Any, node: fx.Node) -> Value:
    """The value of a node's result."""
    node.meta["example_value"] = result
    tracer.sizes.bind_result(result, node)
    if isinstance(result, torch.Tensor):
        known: Value | None = tracer.objects.by_fake.get(id(result))
        if known is not None:  # an in-place operator returns its argument
            return known
        tensor_state.mark_leaf(result, node)
        value = TensorValue(result, node)
        tracer.overrides.wrappers |= is_wrapper(type(result))
        tracer.objects.by_fake[id(result)] = value
        return value
    if result is None or is_atom(result) or isinstance(result, SYMBOLIC):
        return tracer.as_value(result)
    if isinstance(result, (tuple, list)):
        items = [item_of(tracer, item, node, position) for position, item in enumerate(result)]
        return ListValue(items) if isinstance(result, list) else TupleValue(items, type(result))
    tracer.graph_break("operator-result", type=f"{type(result).__module__}.{type(result).__qualname__}")


def item_of(tracer: Tracing, item: Any, node: fx.Node, position: int) -> Value:
    """The value of an item of a node's result."""
    if item is None or is_atom(item) or isinstance(item, SYMBOLIC):
        return tracer.as_value(item)
    getter = record(tracer, "call_function", operator.getitem, (node, position), {})
    return from_fake(tracer, item, getter)


def lift(recorder: Recorder, breaks: Breaks, value: TensorValue | SymbolicValue) -> fx.Node:
    """Make a tensor or int of the program a graph input when it is first used."""
    if value.node is None:
        if value.source is None:  # made in a subgraph and still used: the graph breaks at the call that made it
            locations = recorder.subgraph_tensors.get(value) if isinstance(value, TensorValue) else None
            raise breaks.break_at(locations, "kept-from-inner-graph", type=value.describe())
        label = NOT_A_NAME.sub("_", MODULE_TABLE.sub("", value.source.expr)).strip("_")
        graph, last = recorder.graph, recorder.inputs[-1].node if recorder.inputs else None
        first = next(iter(graph.nodes), None)
        with graph.inserting_before(first) if last is None else graph.inserting_after(last):
            # FX treats a first argument named "self" as the module.
            value.node = graph.placeholder("self_0" if label == "self" else label)
        value.node.target = value.node.name  # several sources can have one label; the node's name is unique
        value.node.meta["example_value"] = value.fake
        recorder.inputs.append(value)
    return value.node
