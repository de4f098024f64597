"""`__torch_function__`: how tensor subclasses and function modes override torch's functions.

To find out what overrides a call, the call is made on stand-in objects: the first `__torch_function__` that torch calls
records its function, types and arguments, and stops the call.
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

# a base of public classes, missing in torch's type stubs
_UNINITIALIZED: type = vars(parameter)["UninitializedTensorMixin"]

T = TypeVar("T")
Quiet: Any = torch._C.DisableTorchFunction
Asking: Any = torch._C._EnableTorchFunction
QuietSubclasses: Any = torch._C.DisableTorchFunctionSubclass
push_mode: Callable[[Any], None] = torch._C._push_on_torch_function_stack
pop_mode: Callable[[], Any] = torch._C._pop_torch_function_stack
mode_count: Callable[[], int] = torch._C._len_torch_function_stack
saved_tensors_unpacked: Callable[[bool], bool] = torch._C._autograd._saved_tensors_hooks_set_tracing
"""Sets whether autograd saves tensors without the program's hooks in this thread, and returns what was set before."""
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
    """Whose `__torch_function__` overrides are disabled."""

    NOBODY = 0
    SUBCLASSES = 1
    ALL = 2


@attrs.frozen
class Overriding:
    """The function modes that are active in this thread, the innermost last, and whose overrides are disabled."""

    modes: tuple[object, ...] = ()
    off: Off = Off.NOBODY


def overriding() -> Overriding:
    """The current state."""
    modes = tuple(mode_at(position) for position in range(mode_count()))
    if torch._C._is_torch_function_all_disabled():
        return Overriding(modes, Off.ALL)
    return Overriding(modes, Off.NOBODY if torch._C._is_torch_function_enabled() else Off.SUBCLASSES)


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """A context in which no mode of the program sees torch calls, and no hook of it the tensors that autograd saves
    for them. torch's own tracers, which are such modes, still do."""
    held, before = [pop_mode() for _ in range(mode_count())], saved_tensors_unpacked(True)
    try:
        with Asking():
            yield
    finally:
        saved_tensors_unpacked(before)
        for mode in reversed(held):
            push_mode(mode)


def without_overrides(fn: Callable[..., T]) -> Callable[..., T]:
    """Wrap a function such that no mode and no subclass sees its torch calls."""

    @functools.wraps(fn)
    def call(*args: Any) -> T:
        with Quiet():
            return fn(*args)

    return call


def run_plain(graph: Callable[..., Any], *inputs: Any) -> Any:
    """Run a compiled graph, which already contains all overrides, on the tensors without their subclass."""
    with Quiet():
        return graph(*[plain(given) if isinstance(given, torch.Tensor) else given for given in inputs])


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without a subclass that only overrides functions. Called with overrides off."""
    return tensor if type(tensor) in KINDS or dispatches(type(tensor)) else tensor.as_subclass(torch.Tensor)


def as_subclass(tensor: torch.Tensor, kind: type, recorded: bool) -> torch.Tensor:
    """`tensor.as_subclass(kind)`; recorded: whether autograd records it, whatever the grad mode."""
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


def stride(tensor: torch.Tensor, axis: int) -> int:
    """`tensor.stride(axis)`."""
    with Quiet():
        return tensor.stride(axis)


def is_overriding(kind: type) -> bool:
    """Whether objects of the type override torch functions that get them as arguments. Not so torch's own classes,
    whose tensors enter the graph unchanged."""
    if kind in KINDS or kind is NestedTensor:
        return False
    method = getattr(kind, "__torch_function__", None)
    return method is not None and method is not NO_FUNCTION


def without_numbers(kind: type) -> bool:
    """Whether tensors of the class may be uninitialised."""
    return issubclass(kind, _UNINITIALIZED)


def dispatches(kind: type) -> bool:
    """Whether the tensor subclass overrides operators, below autograd."""
    return getattr(kind, "__torch_dispatch__", NO_DISPATCH) is not NO_DISPATCH


def asks(fn: FunctionType) -> bool:
    """Whether a Python function of torch checks for overrides before anything else."""
    return not ASKING.isdisjoint(fn.__code__.co_names) and not is_of_levels(fn)


def is_of_levels(fn: FunctionType) -> bool:
    """Whether a function works on levels of torch.func, and only checks for a mode of torch.export's own."""
    return EXPORTING in fn.__code__.co_names


# Asking torch about overrides.


class OverrideCalled(BaseException):
    """Records the arguments with which a `__torch_function__` was called."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.arguments = arguments


class _Spy(TorchFunctionMode):
    def __torch_function__(self, *given: Any) -> NoReturn:
        raise OverrideCalled(given)


def _ask(cls: type, *given: Any) -> NoReturn:
    raise OverrideCalled(given)


@functools.lru_cache(maxsize=256)
def spy_class(kind: type) -> type:
    """A stand-in for a class that overrides torch's functions: it has the same base classes, and only records calls."""
    bases = tuple(spy_class(base) for base in kind.__bases__ if base is not object and is_overriding(base))
    if issubclass(kind, torch.Tensor) and not any(issubclass(base, torch.Tensor) for base in bases):
        bases = (*bases, nn.Parameter if issubclass(kind, nn.Parameter) else torch.Tensor)
    return type(kind.__name__, bases, {"__torch_function__": classmethod(_ask), "stands_for": kind})


def stand_in(kind: type) -> Any:
    """A stand-in for an object of the type: a tensor without elements, or an arbitrary object."""
    made: Any = spy_class(kind) if is_overriding(kind) else kind
    if not issubclass(kind, torch.Tensor):
        return made()
    with torch._C._DisableTorchDispatch():
        empty = torch.empty(0, device="meta")
        return empty if made is torch.Tensor else torch.Tensor._make_subclass(made, empty)


def stood_for(kind: type) -> type:
    """The class behind a spy class; any other class itself."""
    return cast(type, kind.__dict__.get("stands_for", kind))


def override_call(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], *, modes: bool
) -> tuple[Any, ...] | None:
    """The arguments of the `__torch_function__` that is called when `fn` is called on stand-ins: the function, the
    types, the arguments and, if there are any, the keyword arguments. None if there is no override. Errors: those of
    the call.

    modes: whether a mode is active. A Python function that delegates the check to another one counts as not checking.
    """
    try:
        with (
            torch._C._DisableTorchDispatch(),
            Asking(),
            _Spy() if modes else contextlib.nullcontext(),
        ):
            fn(*args, **kwargs)
    except OverrideCalled as found:
        given = found.arguments
        if isinstance(fn, FunctionType) and given[0] is not fn and fn is not handle_torch_function:
            return None
        return (given[0], tuple(stood_for(kind) for kind in given[1]), *given[2:])
    return None
