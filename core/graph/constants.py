"""Values of a graph that depend on constants only, computed at compile time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor, fx

from armature.graph.patterns import fake_of
from armature.torch_abi.computing import NotKnown as NotKnown
from armature.torch_abi.computing import on_constants
from armature.torch_abi.fake import is_fake, of_transform
from armature.torch_abi.memory import HOST
from armature.torch_abi.pytree import tree_map

MOST_BYTES = 1 << 26  # limit for the memory of one value


@attrs.define(eq=False)
class KnownValues:
    """Values of nodes, computed in the memory of the process, on demand and cached."""

    values: dict[fx.Node, Any] = attrs.field(factory=dict)

    def of(self, node: fx.Node) -> Any:
        """The node's value, with tensors in the memory of the process. Errors: NotKnown."""
        for needed in self._missing(node):
            self.values[needed] = self._computed(needed)
        return self.values[node]

    def placed(self, node: fx.Node) -> Tensor:
        """A tensor-valued node's value, on the node's own device. Errors: NotKnown."""
        value = self.of(node)
        with on_constants():
            placed: Tensor = value.to(fake_of(node).device)
        return placed

    def number(self, node: fx.Node) -> bool | int | float:
        """The element of a one-element tensor. Errors: NotKnown."""
        value = self.of(node)
        if not isinstance(value, Tensor) or value.numel() != 1 or value.is_complex():
            raise NotKnown(str(node))
        with on_constants():
            return value.item()

    def converted(self, node: fx.Node, convert: Callable[[Tensor], object]) -> object:
        """The result of a Python conversion such as `float`, applied to a tensor's value. Errors: NotKnown, and the
        function's."""
        value = self.of(node)
        if not isinstance(value, Tensor):
            raise NotKnown(str(node))
        with on_constants():
            return convert(value)

    def elements(self, node: fx.Node) -> list[Any]:
        """The elements of a tensor as numbers, in order. Errors: NotKnown."""
        value = self.of(node)
        if not isinstance(value, Tensor):
            raise NotKnown(str(node))
        with on_constants():
            return value.flatten().tolist()

    def _missing(self, node: fx.Node) -> list[fx.Node]:
        """The node and its transitive operands that have no value yet, operands first."""
        found: dict[fx.Node, None] = {}
        todo = [(node, False)]
        while todo:
            current, ready = todo.pop()
            if ready:
                found[current] = None
            elif current not in found and current not in self.values:
                if not _is_plain(current):
                    raise NotKnown(str(current))
                todo.append((current, True))
                todo += [(needed, False) for needed in current.all_input_nodes]
        return list(found)

    def _computed(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return written_number(node)
        given = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        args, kwargs = tree_map(_on_cpu, given)
        try:
            with on_constants():
                if node.op == "call_method":
                    return getattr(args[0], str(node.target))(*args[1:], **kwargs)
                return _function(node)(*args, **kwargs)
        except NotKnown:
            raise
        except Exception as error:  # the program's own error, or the CPU has no kernel for the call
            raise NotKnown(str(node)) from error


def written_number(node: fx.Node) -> Tensor | None:
    """The constant tensor behind a get_attr node, if it stands for a number of the program (as in `x[0] = 3`) and is
    only copied from."""
    if node.op != "get_attr" or any(user.target is not torch.ops.aten.lift_fresh_copy.default for user in node.users):
        return None
    value = getattr(node.graph.owning_module, str(node.target), None)
    return value if isinstance(value, Tensor) and not is_fake(value) else None


def _is_plain(node: fx.Node) -> bool:
    """Whether the node's value comes from a call, is not too large, was never written to, and is outside of vmap.

    A write to a view counts too: views share their base's version counter.
    """
    if node.op == "get_attr":
        return written_number(node) is not None
    if node.op not in ("call_function", "call_method"):
        return False
    # a functional graph writes to nothing, so the version counters of its fakes do not matter
    functional = "val" in node.meta
    fake = node.meta["val"] if functional else node.meta.get("example_value")
    if not isinstance(fake, Tensor):
        return True
    if of_transform(fake) or fake.layout is not torch.strided:
        return False
    if not functional and (fake.is_inference() or fake._version > 0):
        return False
    size = fake.untyped_storage().nbytes()
    return isinstance(size, int) and size <= MOST_BYTES


def _function(node: fx.Node) -> Callable[..., Any]:
    """The function of torch or Python that the node calls. Errors: NotKnown for other functions, which may do
    anything."""
    target = node.target
    home = getattr(target, "__module__", None) or ""
    if isinstance(target, str):
        raise NotKnown(target)
    if home == "_operator" or home.split(".")[0] == "torch" or getattr(torch, target.__name__, None) is target:
        return target
    raise NotKnown(str(target))


def _on_cpu(value: object) -> object:
    """An argument, with a device replaced by the memory of the process."""
    if isinstance(value, str):
        try:
            value = torch.device(value)
        except RuntimeError:  # a string that is not a device
            return value
    return HOST if isinstance(value, torch.device) else value
