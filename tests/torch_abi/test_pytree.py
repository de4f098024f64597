"""What torch.utils._pytree tells of classes that are registered with it."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.utils import _pytree as pytree

from armature.torch_abi.pytree import registered_class


@dataclasses.dataclass
class Point:
    x: Any
    y: Any


class Own:
    def __init__(self, parts: list[Any], name: str) -> None:
        self.parts, self.name = parts, name


pytree.register_dataclass(Point)
pytree.register_pytree_node(Own, lambda own: (own.parts, own.name), lambda parts, name: Own(list(parts), name))


def test_a_dataclass_and_a_class_of_its_own() -> None:
    node = registered_class(Point)
    assert node is not None
    children, context = node.flatten(Point(1, 2))
    assert list(children) == [1, 2] and node.unflatten([3, 4], context) == Point(3, 4)
    own = registered_class(Own)
    assert own is not None
    children, context = own.flatten(Own([5], "name"))
    made = own.unflatten([6], context)
    assert (list(children), context, made.parts, made.name) == ([5], "name", [6], "name")


def test_other_classes() -> None:
    assert registered_class(type(test_other_classes)) is None
    assert registered_class(dict) is not None
