"""Traces a function as the frame hook would, runs the generated code with the captured graph in its slot, compares."""

from __future__ import annotations

import builtins
import copy
import enum
import inspect
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any

import attrs
import pytest
import torch

import armature
from armature import config
from armature.context import CompileContext
from armature.frame import verify as frame_spec
from armature.frame.data import FrameRequest
from armature.frame.guards.tree import GuardTree, build
from armature.plugins.plugin_manager import manager
from armature.testing.differential import difference
from armature.trace.data import TracedFrame
from armature.trace.errors import GraphBreak
from armature.trace.interpreter import trace_frame
from armature.trace.verify import verify


@attrs.frozen(eq=False)
class Traced:
    """A traced frame, and the function that runs its code in place of the original."""

    frame: TracedFrame
    run: Callable[..., Any]
    tree: GuardTree

    def holds(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
        """Whether the guards hold for a call: whether the generated code may run in it."""
        variables = dict(request_for(fn, *args, **kwargs)[0].locals)
        for name, held in variables.items():
            if isinstance(held, CellType):
                variables[name] = held.cell_contents
        return self.tree.check(variables)

    def targets(self) -> list[Any]:
        """Targets of all calls of the graph."""
        if self.frame.graph is None:
            return []
        return [node.target for node in self.frame.graph.graph.nodes if node.op.startswith("call_")]

    def guards(self, kind: type) -> list[Any]:
        """The guards of a kind."""
        return [guard for guard in self.frame.guards if isinstance(guard, kind)]

    def guarded(self) -> set[str]:
        """Sources of all guards, as expressions."""
        return {guard.source.expr for guard in self.frame.guards if guard.source is not None}


def request_for(
    fn: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[FrameRequest, FunctionType, tuple[Any, ...]]:
    """The frame of a call: a function, or a bound method."""
    if isinstance(fn, MethodType):
        args, fn = (fn.__self__, *args), fn.__func__
    assert isinstance(fn, FunctionType)
    bound = inspect.signature(fn).bind(*args, **kwargs)
    bound.apply_defaults()
    variables = {**bound.arguments, **dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))}
    request = FrameRequest(fn.__code__, variables, fn.__globals__, vars(builtins), fn.__closure__ or ())
    return request, fn, args


def trace(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """Trace a call. Raises GraphBreak, SkipFrame."""
    request, plain, _ = request_for(fn, *args, **kwargs)
    frame_spec.verify(request)
    settings = attrs.evolve(config.current(), strict=True)
    ctx = CompileContext(settings, manager().tables(), None, None, 0)  # type: ignore[arg-type]
    state = torch.get_rng_state()
    frame = trace_frame(request, ctx)
    assert torch.equal(torch.get_rng_state(), state), "tracing drew random numbers"
    verify(frame)
    runner = frame.graph.forward if frame.graph is not None else None
    code = frame.code.replace(co_consts=tuple(runner if c is frame.slot else c for c in frame.code.co_consts))
    made = FunctionType(code, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__)
    made.__kwdefaults__ = plain.__kwdefaults__
    return Traced(frame, made, build(frame.guards, request))


def plain_args(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """With the object of a bound method in front."""
    return (fn.__self__, *args) if isinstance(fn, MethodType) else args


def check(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """The generated code gives what eager gives, leaves the arguments as eager does; twice while the guards hold."""
    traced = trace(fn, *args, **kwargs)
    assert traced.holds(fn, *args, **kwargs), "a guard fails for the very call that was traced"
    for _ in range(2):
        if not traced.holds(fn, *args, **kwargs):
            break
        memo: dict[int, Any] = {}
        theirs, named = copy.deepcopy((plain_args(fn, args), kwargs), memo)
        torch.manual_seed(0)
        mine = traced.run(*plain_args(fn, args), **kwargs)
        torch.manual_seed(0)
        plain = fn.__func__ if isinstance(fn, MethodType) else fn
        eager = plain(*theirs, **named)
        assert difference(eager, mine) <= 1e-6
        assert difference(comparable(theirs), comparable(plain_args(fn, args))) <= 1e-6
    return traced


def comparable(args: Any) -> Any:
    """Arguments as nests of what can be compared: modules and objects by their contents."""
    if isinstance(args, torch.nn.Module):
        plain = {name: value for name, value in vars(args).items() if not name.startswith("_")}
        return {**dict(args.state_dict()), "attributes": comparable(plain)}
    if isinstance(args, (list, tuple)):
        return [comparable(item) for item in args]
    if isinstance(args, dict):
        return {key: comparable(value) for key, value in args.items()}
    if isinstance(args, (int, float, str, bool, type(None), torch.Tensor, enum.Enum)):
        return args
    return {name: comparable(value) for name, value in getattr(args, "__dict__", {}).items()}


def chain(error: BaseException | None) -> Iterator[str]:
    """An exception, what it was raised from, and what was handled meanwhile."""
    while error is not None:
        yield f"{error!r} {error.__suppress_context__}"
        error = error.__cause__ or error.__context__


def break_of(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Id of the graph break that tracing ends in, "" for none."""
    try:
        trace(fn, *args, **kwargs)
    except GraphBreak as stop:
        assert stop.event.stack
        return stop.event.type.id
    return ""


def check_cut(fn: Callable[..., Any], *args: Any, broken_by: str) -> None:
    """The graph breaks, with this id, and what the compiled function gives is what eager gives, each time."""
    assert break_of(fn, *args) == broken_by
    compiled = armature.compile(fn, backend="eager")
    for _ in range(2):
        mine, theirs = copy.deepcopy((args, args), {})
        assert difference(fn(*theirs), compiled(*mine)) <= 1e-6


def programs(namespace: dict[str, Any], not_yet: dict[str, str] | None = None) -> list[Any]:
    """The functions of a test file whose only parameter is `t`, as parameters of a test.

    not_yet: names to the reason why the program does not trace yet; these tests are expected to fail, strictly.
    """
    found = []
    for name, fn in namespace.items():
        if isinstance(fn, FunctionType) and tuple(inspect.signature(fn).parameters) == ("t",):
            reason = (not_yet or {}).get(name)
            marks = () if reason is None else (pytest.mark.xfail(strict=True, reason=reason),)
            found.append(pytest.param(fn, id=name, marks=marks))
    unknown = set(not_yet or {}) - {param.id for param in found}
    assert not unknown, unknown
    return found
