"""`__torch_function__`: what tensor subclasses and function modes make of torch's functions.

torch itself is asked who overrides a call, with which function, types and arguments: the call is made on stand-ins, and
the first `__torch_function__` that it comes to notes what it was given and stops the call.
"""

from __future__ import annotations

import contextlib
import enum
import functools
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, NoReturn, TypeVar, cast

import attrs
import torch
from torch import nn
from torch.nn import parameter
from torch.overrides import TorchFunctionMode, handle_torch_function

from armature.torch_abi.grad_modes import set_grad_enabled
from armature.torch_abi.jagged import NestedTensor

_UNINITIALIZED: type = vars(parameter)["UninitializedTensorMixin"]  # of public classes, and not in their types

T = TypeVar("T")
Quiet: Any = torch._C.DisableTorchFunction
Asking: Any = torch._C._EnableTorchFunction
QuietSubclasses: Any = torch._C.DisableTorchFunctionSubclass
push_mode: Callable[[Any], None] = torch._C._push_on_torch_function_stack
pop_mode: Callable[[], Any] = torch._C._pop_torch_function_stack
mode_count: Callable[[], int] = torch._C._len_torch_function_stack
mode_at: Callable[[int], Any] = torch._C._get_function_stack_at
NO_FUNCTION: Any = torch._C._disabled_torch_function_impl
NO_DISPATCH: Any = torch._C._disabled_torch_dispatch_impl
DEFAULT: FunctionType = cast(Any, torch.Tensor.__dict__["__torch_function__"]).__func__
"""`torch.Tensor.__torch_function__`, which subclasses call by `super()`."""
KINDS = frozenset({torch.Tensor, nn.Parameter, nn.Buffer})
OWN_CLASSES = frozenset({*torch.Tensor.__mro__, *KINDS})
EXPORTING = "_maybe_find_pre_dispatch_tf_mode_for_export"
ASKING = frozenset({
    "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "handle_torch_function",
})  # fmt: skip


class Off(enum.IntEnum):
    """Whose `__torch_function__` is not asked."""

    NOBODY = 0
    SUBCLASSES = 1
    ALL = 2


@attrs.frozen
class Overriding:
    """The function modes that are active in this thread, the innermost last, and who is not asked."""

    modes: tuple[object, ...] = ()
    off: Off = Off.NOBODY


def overriding() -> Overriding:
    """As it is now."""
    modes = tuple(mode_at(position) for position in range(mode_count()))
    if torch._C._is_torch_function_all_disabled():
        return Overriding(modes, Off.ALL)
    return Overriding(modes, Off.NOBODY if torch._C._is_torch_function_enabled() else Off.SUBCLASSES)


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """No mode of the program sees what torch is asked to do inside. torch's own tracers do, which are such objects."""
    held = [pop_mode() for _ in range(mode_count())]
    try:
        with Asking():
            yield
    finally:
        for mode in reversed(held):
            push_mode(mode)


def quietly(fn: Callable[..., T]) -> Callable[..., T]:
    """The function, such that no mode and no subclass sees what it asks torch to do."""

    @functools.wraps(fn)
    def call(*args: Any) -> T:
        with Quiet():
            return fn(*args)

    return call


def run_plain(graph: Callable[..., Any], *inputs: Any) -> Any:
    """Run a compiled graph, in which all overriding is done already, on the tensors without their subclass."""
    with Quiet():
        return graph(*[plain(given) if isinstance(given, torch.Tensor) else given for given in inputs])


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, without a subclass that overrides functions only. Called with overriding off."""
    return tensor if type(tensor) in KINDS or dispatches(type(tensor)) else tensor.as_subclass(torch.Tensor)


def as_subclass(tensor: torch.Tensor, kind: type, recorded: bool) -> torch.Tensor:
    """`tensor.as_subclass(kind)`; recorded: whether autograd records it, whatever the mode is."""
    before = torch.is_grad_enabled()
    with Quiet():
        set_grad_enabled(recorded)
        try:
            return tensor.as_subclass(kind)
        finally:
            set_grad_enabled(before)


def size(tensor: torch.Tensor, axis: int) -> int:
    """`tensor.size(axis)`."""
    with Quiet():
        return tensor.size(axis)


def is_overriding(kind: type) -> bool:
    """Whether objects of the type take over torch's functions that they are given to: all but those of torch's own
    classes, whose tensors go in the graph as they are."""
    if kind in KINDS or kind is NestedTensor:
        return False
    method = getattr(kind, "__torch_function__", None)
    return method is not None and method is not NO_FUNCTION


def without_numbers(kind: type) -> bool:
    """Whether tensors of the class may wait for their shape."""
    return issubclass(kind, _UNINITIALIZED)


def dispatches(kind: type) -> bool:
    """Whether the tensor subclass takes over operators, below autograd."""
    return getattr(kind, "__torch_dispatch__", NO_DISPATCH) is not NO_DISPATCH


def asks(fn: FunctionType) -> bool:
    """Whether a Python function of torch asks, before all else, whether it is overridden."""
    return not ASKING.isdisjoint(fn.__code__.co_names) and not is_of_levels(fn)


def is_of_levels(fn: FunctionType) -> bool:
    """Whether a function works on levels of torch.func, and asks nobody but a mode of torch.export's own."""
    return EXPORTING in fn.__code__.co_names


# Asking torch.


class Asked(BaseException):
    """What a `__torch_function__` was called with."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        super().__init__()
        self.given = given


class _Spy(TorchFunctionMode):
    def __torch_function__(self, *given: Any) -> NoReturn:
        raise Asked(given)


def _ask(cls: type, *given: Any) -> NoReturn:
    raise Asked(given)


@functools.lru_cache(maxsize=256)
def spy_class(kind: type) -> type:
    """A class that stands in for one that overrides torch's functions: derived as that is, and it only takes notes."""
    bases = tuple(spy_class(base) for base in kind.__bases__ if base is not object and is_overriding(base))
    if issubclass(kind, torch.Tensor) and not any(issubclass(base, torch.Tensor) for base in bases):
        bases = (*bases, nn.Parameter if issubclass(kind, nn.Parameter) else torch.Tensor)
    return type(kind.__name__, bases, {"__torch_function__": classmethod(_ask), "stands_for": kind})


def stand_in(kind: type) -> Any:
    """An object in the place of one of the type: a tensor without elements, or something that is like one."""
    made: Any = spy_class(kind) if is_overriding(kind) else kind
    if not issubclass(kind, torch.Tensor):
        return made()
    with torch._C._DisableTorchDispatch():
        empty = torch.empty(0, device="meta")
        return empty if made is torch.Tensor else torch.Tensor._make_subclass(made, empty)


def stood_for(kind: type) -> type:
    """The class that a spy class stands for; any other class itself."""
    return cast(type, kind.__dict__.get("stands_for", kind))


def asked(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], *, modes: bool
) -> tuple[Any, ...] | None:
    """What `__torch_function__` gets when `fn` is called on stand-ins: the function, the types, the arguments and,
    where there are any, the keyword arguments. None: nobody is asked. Errors: those of the call.

    modes: whether a mode is active. A Python function that has another one asked is said to ask nobody.
    """
    try:
        with (
            torch._C._DisableTorchDispatch(),
            Asking(),
            _Spy() if modes else contextlib.nullcontext(),
        ):
            fn(*args, **kwargs)
    except Asked as found:
        given = found.given
        if isinstance(fn, FunctionType) and given[0] is not fn and fn is not handle_torch_function:
            return None
        return (given[0], tuple(stood_for(kind) for kind in given[1]), *given[2:])
    return None
