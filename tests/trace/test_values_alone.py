"""Values work with the parts of a trace that they ask, and parts with the parts that they are made of; without a trace."""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from armature.frame.guards.kinds import TypeGuard, ValueGuard
from armature.frame.sources import LocalSource, ObjectSource
from armature.plugins.plugin_manager import manager
from armature.torch_abi.fake import FakeWorld
from armature.torch_abi.overrides import Off
from armature.torch_abi.symbols import Symbols
from armature.trace.base import Value
from armature.trace.effects import Effects, Ending, Precalls
from armature.trace.errors import GraphBreak, SkipFrame
from armature.trace.guards import GuardRecorder
from armature.trace.names import Names
from armature.trace.objects import Objects
from armature.trace.plans import Knowledge
from armature.trace.recorder import GraphRecorder
from armature.trace.recording.graph_nodes import lift
from armature.trace.recording.overriding import Overrides
from armature.trace.recording.sizes import Sizes
from armature.trace.stack import MOST_IDLE_STEPS, Breaks, FrameStack
from armature.trace.values.constant import ConstantValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.sequence import ListValue, TupleValue
from armature.trace.values.tensor import TensorValue
from armature.trace.wrap import wrap


class Rules:
    """The one verb of `Tracing.python` that is needed here; counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def same_or_equal(self, left: Value, right: Value) -> bool:
        self.asked += 1
        return left.as_constant() == right.as_constant()


class Raised(Exception):
    pass


def trace_of(**parts: Any) -> Any:
    def refuse(kind: type, *args: Any) -> None:
        raise Raised(kind.__name__)

    return SimpleNamespace(constant=ConstantValue, raise_error=refuse, raise_value=refuse, **parts)


def numbers(*items: int) -> list[Value]:
    return [ConstantValue(item) for item in items]


@pytest.mark.parametrize("kind", [TupleValue, ListValue])
def test_a_sequence_asks_for_comparison_alone(kind: type[Any]) -> None:
    rules = Rules()
    value = kind(numbers(1, 2, 3))
    assert value.contains(trace_of(python=rules), ConstantValue(2)) and rules.asked == 2
    assert not value.contains(trace_of(python=rules), ConstantValue(7)) and rules.asked == 5
    assert value.length(trace_of()) == 3 and value.truth(trace_of())


def test_a_dict_needs_no_part_for_keys_that_are_known() -> None:
    trace = trace_of(guards=None)
    value = DictValue({})
    changed: list[Value] = []
    trace.mutate = changed.append
    value.set_item(trace, ConstantValue("a"), ConstantValue(1))
    assert changed == [value]
    assert value.get_item(trace, ConstantValue("a")).as_constant() == 1
    with pytest.raises(Raised, match="KeyError"):
        value.get_item(trace, ConstantValue("b"))


def test_objects_keep_the_value_of_an_object_and_the_object_itself() -> None:
    known: Objects[Value, Value, Value] = Objects()
    made = ConstantValue(1)
    assert known.remember(obj := object(), made) is made
    assert known.by_id[id(obj)] == (obj, made)


def test_a_recorder_knows_its_graph_alone() -> None:
    recorder: GraphRecorder[Value, Value, tuple[int, ...]] = GraphRecorder()
    assert recorder.last is None and not recorder.computes
    x = recorder.graph.placeholder("x")
    switch = recorder.graph.call_function(torch.set_grad_enabled, (False,))
    switch.meta["changes_state"] = True
    assert not recorder.computes and recorder.after(x) == (switch,)
    added = recorder.graph.call_function(torch.add, (x, x))
    assert recorder.computes and recorder.computes_more_than_sizes and recorder.last is added
    assert recorder.after(x) == (switch, added) and list(recorder.calls()) == [switch, added]


def test_a_stack_counts_the_steps_of_a_trace_that_meets_no_tensor() -> None:
    tensors: dict[int, object] = {}
    idle: FrameStack[Any] = FrameStack(False, tensors)
    code = test_objects_keep_the_value_of_an_object_and_the_object_itself.__code__
    assert [idle.enter(code) for _ in range(3)] == [0, 1, 2] and list(idle.codes.values()) == [code]
    with pytest.raises(SkipFrame, match="no tensor in 1000"):
        for _ in range(MOST_IDLE_STEPS):
            idle.step()
    tensors[0] = "met"
    idle.step()
    assert idle.origin()[2] == "" and idle.summaries() == ()


def test_breaks_ask_the_catalogue_and_the_stack() -> None:
    stack: FrameStack[Any] = FrameStack()
    stop = Breaks(manager().tables(), stack).break_at(None, "mode-not-entered")
    assert stop.event.type.id == "mode-not-entered" and stop.event.stack == () == stop.locations
    unknown = Breaks(manager().tables(), stack).break_at((), "not-in-the-catalogue", what=3)
    assert unknown.event.type.hints and unknown.event.facts == {"what": 3}


def test_function_modes_need_effects_and_breaks_alone() -> None:
    effects: Any = Effects()
    overrides = Overrides(effects, Breaks(manager().tables(), FrameStack()))
    outer, inner = ConstantValue("outer"), ConstantValue("inner")
    overrides.begin([outer], Off.NOBODY)
    overrides.push(inner)
    assert overrides.moved and overrides.has_modes and effects.count == 1
    assert overrides.pop() is inner and not overrides.moved
    overrides.pop()
    with pytest.raises(GraphBreak, match="mode-not-entered"):
        overrides.pop()
    with pytest.raises(GraphBreak, match="opaque-subclass"):
        overrides.accept(Dispatching)


class Dispatching(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_knowledge_asks_the_tables_once_for_a_callable() -> None:
    asked: dict[int, object] = {}
    knowledge = Knowledge(manager().tables(), asked)
    assert knowledge.plan_of(len) is knowledge.plan_of(len) and knowledge.plan_of(len).handlers
    assert asked == {id(len): len} and knowledge.verdict(print).breaks


def test_sizes_need_no_trace() -> None:
    recorder: Any = GraphRecorder()
    tables = manager().tables()
    world, stack = FakeWorld(Symbols(scalar_outputs=False, output_shapes=False), {}), FrameStack[Any]()
    request: Any = SimpleNamespace(dynamic=None)

    def lift(value: Any) -> Any:
        value.node = recorder.graph.placeholder("n")
        value.node.meta["example_value"] = value.fake
        return value.node

    sizes = Sizes(request, world, recorder, stack, Breaks(tables, stack), lift)
    number = sizes.of_int(7, LocalSource("n"))
    assert sizes.of_int(7, LocalSource("n")) is number and sizes.decide(number.fake > 3)
    assert sizes.argument(number.fake * 2) is recorder.last and recorder.last.target is operator.mul
    (condition,) = sizes.guards()
    assert condition.words == "n > 3"


def test_names_need_objects_guards_and_effects_alone() -> None:
    guards: Any = SimpleNamespace(builtin=lambda held, name: LocalSource(name) if name in held else None)
    objects: Objects[Value, Value, Value] = Objects()
    objects.wrap = lambda obj, source: ConstantValue(obj, source=source)

    def refuse(*told: Any) -> Any:
        raise Raised(told[-1])

    effects: Any = Effects()
    names = Names(objects, guards, effects, ConstantValue, refuse, refuse)
    frame: Any = SimpleNamespace(namespace={"size": 3}, builtins={"len": len}, trusted=True, globals_source=None)
    assert names.load_global(frame, "size").as_constant() == 3
    assert names.load_global(frame, "size") is names.load_global(frame, "size")
    assert names.load_global(frame, "len").as_constant() is len
    with pytest.raises(Raised, match="name 'width' is not defined"):
        names.load_global(frame, "width")
    assert names.constant(text := "size") is names.constant(text)


def test_a_graph_input_needs_the_recorder_and_breaks_alone() -> None:
    recorder: Any = GraphRecorder()
    breaks = Breaks(manager().tables(), FrameStack())
    first = TensorValue(torch.ones(2), None, source=LocalSource("self"))
    second = TensorValue(torch.ones(2), None, source=LocalSource("x"))
    nodes = [lift(recorder, breaks, value) for value in (first, second, first)]
    assert nodes[0] is nodes[2] and [node.name for node in recorder.graph.nodes] == ["self_0", "x"]
    assert recorder.inputs == [first, second]
    with pytest.raises(GraphBreak, match="kept-from-inner-graph"):
        lift(recorder, breaks, TensorValue(torch.ones(2)))


def test_guards_record_each_fact_once_with_the_line_that_relied_on_it() -> None:
    lines = iter(["model.py:1", "model.py:2"])
    guards = GuardRecorder(lambda: next(lines))
    guards.type_is(LocalSource("x"), int)
    guards.type_is(LocalSource("x"), int)
    guards.type_is(ObjectSource(3, "three"), int)  # the compiled code holds it
    guards.equal(LocalSource("x"), 3)
    assert [type(guard) for guard in guards.records.values()] == [TypeGuard, ValueGuard]
    assert [guard.user for guard in guards.records.values()] == ["model.py:1", "model.py:2"]


def test_effects_count_what_outlives_the_frame() -> None:
    effects: Effects[Value, Any] = Effects()
    made, given = ListValue([]), ListValue([], source=LocalSource("x"))
    effects.record(made)
    assert effects.empty and effects.count == 0
    effects.record(given)
    assert list(effects.changed) == [given] and effects.count == 1 and not effects.empty
    namespace: dict[str, object] = {}
    effects.store_global(namespace, "n", made)
    assert effects.global_of(namespace, "n") == (namespace, made)
    effects.store_global(namespace, "n", None)  # made and deleted by the frame
    assert effects.global_of(namespace, "n") is None


def test_calls_before_the_graph_and_the_end_need_nothing() -> None:
    calls: Precalls[Value] = Precalls()
    assert [calls.add(len, ()).number, calls.add(len, ()).number] == [0, 1]
    undone: list[str] = []
    ending: Ending[Any] = Ending()
    ending.undo += [(undone.append, "first"), (undone.append, "last")]
    for leave, state in reversed(ending.undo):
        leave(state)
    assert undone == ["last", "first"]


def test_an_object_is_wrapped_with_objects_and_guards_alone() -> None:
    guards = GuardRecorder(lambda: "model.py:1")
    objects: Objects[Value, Any, Any] = Objects()
    tables: Any = None  # asked for types that the language does not have
    given = [1]
    first = wrap(tables, trace_of(guards=guards, objects=objects), given, LocalSource("x"))
    assert isinstance(first, ListValue) and wrap(tables, trace_of(objects=objects), given, LocalSource("x")) is first
    assert [type(guard) for guard in guards.records.values()] == [TypeGuard]
