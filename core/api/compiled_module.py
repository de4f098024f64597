"""The result of `armature.compile(module)`: a module that is the original in everything but its call."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from torch import fx, nn

from armature.errors import ReadsSource
from armature.frame.hook import FrameHook
from armature.torch_abi import recorders
from armature.torch_abi.eval_frame import set_eval_frame, skip_code
from armature.torch_abi.modules import calls_forward_only
from armature.torch_abi.recorders import at_work, fx_at_work


class CompiledModule(nn.Module):
    """Runs the original module with the frame hook on. Attributes, parameters, hooks, mode and state are the
    original's.

    `__armature_original__` is the original; state_dict keys are unchanged; pickling and copying preserve the options.
    Functions that change a module's class (`fully_shard`, `register_parametrization`), or that store data about it in a
    table, act on the original: this object reports the same class, and the two are equal.
    """

    __class__: Any = property(lambda self: type(self.__dict__["__armature_original__"]))

    def __init__(self, original: nn.Module, hook: FrameHook, again: Callable[[nn.Module], Any]) -> None:
        # nn.Module.__init__ is not called on purpose: this object has no state of its own.
        self.__dict__["__armature_original__"] = original
        self.__dict__["_armature_hook"] = hook
        self.__dict__["_armature_again"] = again

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        held = self.__dict__
        original = held["__armature_original__"]
        if at_work():  # another tool is recording the call
            return original(*args, **kwargs)
        target = original.forward if calls_forward_only(original) else original
        prior = set_eval_frame(held["_armature_hook"])
        try:
            return target(*args, **kwargs)
        finally:
            set_eval_frame(prior)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["__armature_original__"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["__armature_original__"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["__armature_original__"], name)

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["__armature_original__"])

    def __eq__(self, other: object) -> bool:
        mine = self.__dict__["__armature_original__"]
        return other is mine or (isinstance(other, CompiledModule) and other.__dict__["__armature_original__"] is mine)

    def __hash__(self) -> int:
        return hash(self.__dict__["__armature_original__"])

    def __repr__(self) -> str:
        return f"armature.compile({self.__dict__['__armature_original__']!r})"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _copied, (self.__dict__["_armature_again"], self.__dict__["__armature_original__"])

    def __prepare_scriptable__(self) -> nn.Module:
        # Called by torch.jit.script on a module and its submodules. It would permanently replace this module by the
        # original, and compile all modules of this class as one program.
        raise ReadsSource(tool="torch.jit.script")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _copied(self.__dict__["_armature_again"], copy.deepcopy(self.__dict__["__armature_original__"], memo))


def with_hook(fn: Callable[..., Any], hook: FrameHook, original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls `fn` with the frame hook on, and represents `original`."""
    compiled = recorders.with_hook(fn, hook)
    functools.update_wrapper(compiled, original)
    vars(compiled)["__armature_original__"] = original
    return compiled


def _copied(again: Callable[[nn.Module], Any], original: nn.Module) -> Any:
    return again(original)


def _forward(name: str) -> Callable[..., Any]:
    """A method that calls the original's."""
    base = getattr(nn.Module, name)

    @functools.wraps(base)
    def method(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
        original = self.__dict__["__armature_original__"]
        result = getattr(original, name)(*args, **kwargs)
        return self if result is original else result  # train, eval, to, ... return the module

    return method


def _run_forward(hook: FrameHook, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if at_work():  # another tool is recording the call
        return forward(*args, **kwargs)
    prior = set_eval_frame(hook)
    try:
        return forward(*args, **kwargs)
    finally:
        set_eval_frame(prior)


def _called_forward(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
    """The original's `forward` with the frame hook on. torch.fx calls the function that it finds in the class, with
    proxies as arguments."""
    if fx_at_work() and isinstance(args, fx.Proxy):
        raise ReadsSource(tool="torch.fx.symbolic_trace")
    held = self.__dict__
    return _run_forward(held["_armature_hook"], held["__armature_original__"].forward, args, kwargs)


def _function_for(forward: Callable[..., Any], hook: FrameHook) -> Callable[..., Any]:
    """An unbound method that runs `forward` with the frame hook on, and has the signature of its function. It may get
    the original as `self`: compiled code has that in place of this object."""

    def called(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return _run_forward(hook, forward, args, kwargs)

    skip_code(called.__code__)
    if isinstance(forward, MethodType):
        functools.update_wrapper(called, forward.__func__)
    return called


class _Forward:
    """The attribute `forward`. Reading it returns the original's `forward` of that moment: programs wrap it, or its
    function (`__func__`), and assign the wrapper to `forward`, and the wrapper must then not call itself."""

    def __get__(self, instance: CompiledModule | None, owner: type) -> Callable[..., Any]:
        if instance is None:
            return _called_forward
        held = instance.__dict__
        forward = held["__armature_original__"].forward
        kept = held.get("_armature_forward")
        if kept is None or kept[0] != forward:
            kept = held["_armature_forward"] = (forward, _function_for(forward, held["_armature_hook"]))
        return MethodType(kept[1], instance)


# Methods of nn.Module that lookup on this class would find before it calls `__getattr__`.
for _name, _member in vars(nn.Module).items():
    if isinstance(_member, FunctionType) and (_name == "__setstate__" or not _name.startswith("__")):
        setattr(CompiledModule, _name, _Forward() if _name == "forward" else _forward(_name))

skip_code(CompiledModule.__call__.__code__)
skip_code(_called_forward.__code__)
skip_code(_run_forward.__code__)
