"""torch's C++ guard tree, typed: a root, managers for the objects below it, guards on each.

A manager never gets a dict as example value: torch would then expect an enum of its own compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import WrapperDescriptorType
from typing import Any, Protocol

import torch

from armature.introspection import class_member

_C: Any = torch._C._dynamo.guards
ITS_CLASS: Any = object.__dict__["__class__"]

FailureTexts = list[str]  # the texts that a failing guard reports


class DebugInfo(Protocol):
    """The result of `check_verbose`."""

    result: bool
    verbose_code_parts: list[str]


class Manager(Protocol):
    """A node of the tree: guards on one object, and accessors to objects below."""

    def framelocals_manager(
        self, key: tuple[str, int], source: str, example_value: object, enum: object, /
    ) -> Manager: ...
    def globals_dict_manager(
        self, f_globals: dict[Any, Any], source: str, example_value: object, enum: object, /
    ) -> Manager: ...
    def dict_getitem_manager(self, key: object, source: str, example_value: object, enum: object, /) -> Manager: ...
    def list_getitem_manager(self, key: int, source: str, example_value: object, enum: object, /) -> Manager: ...
    def tuple_getitem_manager(self, key: int, source: str, example_value: object, enum: object, /) -> Manager: ...
    def getitem_manager(self, key: object, source: str, example_value: object, enum: object, /) -> Manager: ...
    def getattr_manager(self, attr: str, source: str, example_value: object, enum: object, /) -> Manager: ...
    def get_generic_dict_manager(self, source: str, example_value: object, enum: object, /) -> Manager: ...
    def weakref_call_manager(self, source: str, example_value: object, enum: object, /) -> Manager: ...
    def lambda_manager(
        self, read: Callable[[Any], object], source: str, example_value: object, enum: object, /
    ) -> Manager: ...
    def type_manager(self, source: str, example_value: object, enum: object, /) -> Manager: ...
    def add_type_match_guard(self, type_id: int, parts: FailureTexts, stack: None, /) -> None: ...
    def add_id_match_guard(self, obj_id: int, parts: FailureTexts, stack: None, /) -> None: ...
    def add_equals_match_guard(self, value: object, parts: FailureTexts, stack: None, /) -> None: ...
    def add_none_match_guard(self, parts: FailureTexts, stack: None, /) -> None: ...
    def add_lambda_guard(self, fn: Callable[[Any], bool], parts: FailureTexts, stack: None, /) -> None: ...
    def add_length_check_guard(self, length: int, parts: FailureTexts, stack: None, /) -> None: ...
    def add_dict_length_check_guard(self, length: int, parts: FailureTexts, stack: None, /) -> None: ...
    def add_dict_contains_guard(self, contains: bool, key: object, parts: FailureTexts, stack: None, /) -> None: ...
    def add_mapping_keys_guard(self, mapping: object, parts: FailureTexts, stack: None, /) -> None: ...
    def add_tensor_match_guard(
        self,
        value: torch.Tensor,
        sizes: list[int | None],
        strides: list[int | None],
        name: str,
        parts: FailureTexts,
        stack: None,
        type_: type,
        dispatch_keys: object,
        /,
    ) -> None: ...
    def add_global_state_guard(self, state: object, parts: FailureTexts, stack: None, /) -> None: ...
    def add_torch_function_mode_stack_guard(self, modes: list[Any], parts: FailureTexts, stack: None, /) -> None: ...
    def add_default_device_guard(self, parts: FailureTexts, stack: None, /) -> None: ...


class Root(Manager, Protocol):
    """The root of a tree. `check` takes the frame's locals."""

    def check(self, f_locals: object, /) -> bool: ...
    def check_verbose(self, f_locals: object, /) -> DebugInfo: ...
    def add_epilogue_lambda_guard(self, fn: Callable[[Any], bool], parts: FailureTexts, stack: None, /) -> None: ...


def new_root() -> Root:
    """An empty tree, which always holds."""
    root: Root = _C.RootGuardManager()
    return root


def never() -> Root:
    """A tree that never holds."""
    root = new_root()
    root.add_lambda_guard(lambda _: False, ["an object that the compiled code relied on is gone"], None)
    return root


def example(obj: object) -> object:
    """An object as example value for a manager: None in place of a dict, and of an object whose `__class__` is computed
    by code of the program."""
    kind = type(obj)
    plain = class_member(kind, "__class__") is ITS_CLASS and isinstance(
        class_member(kind, "__getattribute__"), WrapperDescriptorType
    )
    return None if issubclass(kind, dict) or not plain else obj


def tensor_match(
    manager: Manager,
    tensor: torch.Tensor,
    sizes: Sequence[int | None],
    strides: Sequence[int | None],
    name: str,
    parts: FailureTexts,
) -> None:
    """Guard type, dispatch keys, dtype, device, requires_grad, sizes and strides (None: any)."""
    keys = torch._C._dispatch_keys(tensor)
    manager.add_tensor_match_guard(tensor, list(sizes), list(strides), name, parts, None, type(tensor), keys)


def forward_level() -> int:
    """The current level of forward mode, -1 for none."""
    level: int = torch.autograd.forward_ad._current_level
    return level


def global_state(manager: Manager, parts: FailureTexts) -> None:
    """Guard grad mode, autocast, default dtype, determinism, threads, active function modes and the level of forward
    mode."""
    manager.add_global_state_guard(_C.GlobalStateGuard(), parts, None)
    # In the module's dict, because torch's own guard reads the attribute, which takes three times as long.
    levels = manager.globals_dict_manager(vars(torch.autograd.forward_ad), "forward_ad", None, None)
    level = levels.dict_getitem_manager("_current_level", "forward_ad._current_level", forward_level(), None)
    level.add_equals_match_guard(forward_level(), parts, None)
    count = torch._C._len_torch_function_stack()
    modes = [torch._C._get_function_stack_at(position) for position in range(count)]
    manager.add_torch_function_mode_stack_guard(modes, parts, None)
    if modes:  # the stack is compared by type: a separate guard distinguishes default devices
        manager.add_default_device_guard(parts, None)


def same_object(first: Manager, second: Manager, parts: FailureTexts) -> None:
    """Guard that two managers lead to the same object."""
    _C.install_object_aliasing_guard(first, second, parts, None)


def different_objects(managers: list[Manager], names: list[str], parts: FailureTexts) -> None:
    """Guard that no two managers lead to the same object, whatever its type."""
    _C.install_no_tensor_aliasing_guard(managers, names, parts, None)
