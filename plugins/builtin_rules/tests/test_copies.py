"""copy.deepcopy of what holds tensors, and addresses as keys."""

from __future__ import annotations

import collections
import copy
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature import errors
from armature.testing.handler_kit import break_id

Function = Callable[..., Any]


class Holder:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.items = [tensor, {"one": tensor + 1}]


def of_a_dict(x: torch.Tensor) -> Any:
    given = {"a": x, "b": [x, 1], "c": (x * 2,)}
    made = copy.deepcopy(given)
    made["a"].add_(1)
    return given, made, made["a"] is made["b"][0], made["a"] is x, made["c"] is given["c"]


def of_an_object(x: torch.Tensor) -> Any:
    given = Holder(x)
    made, other = copy.deepcopy(given), copy.copy(given)
    made.tensor.mul_(2)
    return made.items, other.tensor is x, made.items[0] is made.tensor, type(made) is Holder, given.items


def of_a_tensor(x: torch.Tensor) -> Any:
    made = copy.deepcopy(x)
    x.add_(1)
    return made, made.stride(), made.storage_offset(), copy.copy({"x": x})["x"] is x


def by_address(x: torch.Tensor) -> Any:
    y, seen, places = x + 1, set(), {}
    for tensor in (x, y, x):
        seen.add(id(tensor))
        places[id(tensor)] = tensor
    return len(seen), id(x) in seen, id(x) == id(y), len(places), places[id(y)] is y, id(x * 2) in seen


def by_address_of_functions(x: torch.Tensor) -> Any:
    seen = {id(of_a_dict): 1, id(Holder): 2, id(copy): 3, id(len): 4}
    seen[id(of_a_dict)] = 5
    return x + len(seen), id(Holder) in seen, id(len) in seen, seen[id(of_a_dict)], id(print) in seen


def shown(result: Any) -> str:
    return str(result)


FUNCTIONS = [of_a_dict, of_an_object, of_a_tensor, by_address, by_address_of_functions]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("x", [torch.arange(4.0), torch.ones(2, 3).t(), torch.ones(2, 2, 2, 2)], ids=["1d", "t", "4d"])
def test_as_in_eager_mode(function: Function, x: torch.Tensor) -> None:
    compiled = armature.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        assert shown(compiled(x.clone())) == shown(function(x.clone()))


def deep(x: torch.Tensor) -> Any:
    return copy.deepcopy([x])[0]


def facts(made: torch.Tensor) -> tuple[Any, ...]:
    memory = made.stride(), made.storage_offset(), made.untyped_storage().nbytes()
    return memory, made.requires_grad, str(made.grad), vars(made), made.is_leaf, made.tolist()


def with_attribute() -> torch.Tensor:
    x = torch.ones(2)
    x.kept = [1]  # type: ignore[attr-defined]
    return x


def with_gradient() -> torch.Tensor:
    x = torch.ones(2)
    x.grad = torch.ones(2) * 3
    return x


UNUSUAL: dict[str, Callable[[], torch.Tensor]] = {
    "strided": lambda: torch.arange(6.0)[::2],
    "offset": lambda: torch.arange(6.0)[3:],
    "front": lambda: torch.arange(6.0)[:3],
    "expanded": lambda: torch.ones(1).expand(3),
    "trains": lambda: torch.ones(2, requires_grad=True),
    "attribute": with_attribute,
    "gradient": with_gradient,
    "conjugate": lambda: torch.ones(2, dtype=torch.complex64).conj(),
}


@pytest.mark.parametrize("make", UNUSUAL.values(), ids=UNUSUAL)
def test_what_a_clone_would_change_is_copied_by_torch(make: Callable[[], torch.Tensor]) -> None:
    assert break_id(deep, (make(),)) == "deep-copies-tensor"
    compiled = armature.compile(deep, backend="eager")
    usual = torch.ones(make().shape, dtype=make().dtype)
    for x in (usual, make(), usual):  # guarded, too
        assert facts(compiled(x)) == facts(deep(x))


def test_a_result_with_a_gradient_is_refused_as_in_eager_mode() -> None:
    def function(x: torch.Tensor) -> Any:
        return copy.deepcopy(x * 2)

    x = torch.ones(2, requires_grad=True)
    for run in (function, armature.compile(function, backend="eager")):
        with pytest.raises(RuntimeError, match="created explicitly by the user"):
            run(x)


def both(x: torch.Tensor, y: torch.Tensor) -> Any:
    a, b = copy.deepcopy((x, y))
    return a, b


def test_copies_share_memory_as_their_originals() -> None:
    compiled = armature.compile(both, backend="eager")
    x = torch.ones(4)
    for other in (torch.ones(4), x, x.view(2, 2), x.detach(), torch.ones(4)):
        for run in (both, compiled):
            a, b = run(x, other)
            assert (a is b) is (other is x)
            a.add_(1)
            assert torch.equal(b.view(-1), a if other.data_ptr() == x.data_ptr() else torch.ones(4)), run


def test_which_objects_are_one_is_guarded() -> None:
    def function(x: torch.Tensor, first: list[int], second: list[int]) -> Any:
        a, b = copy.deepcopy([first, second])
        return x + 1, a is b, len({id(first), id(second)})

    compiled, one = armature.compile(function, backend="eager", fullgraph=True), [1]
    for pair in (([1], [1]), (one, one), ([1], [1])):
        assert shown(compiled(torch.ones(1), *pair)) == shown(function(torch.ones(1), *pair))


LIST, TUPLE, TENSORS = [1], (1, 2), [torch.ones(1)]
PLACES = {id(LIST), id(TUPLE), id(TENSORS)}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + (id(LIST) in PLACES),
        lambda x: x + (id(TENSORS) in PLACES),
        lambda x: x + (id(TUPLE) in PLACES),
        lambda x: x + ({id(LIST): 1}.get(next(iter(PLACES)), 0)),
    ],
)
def test_an_address_of_a_container_is_not_looked_for_among_numbers(function: Callable[..., torch.Tensor]) -> None:
    assert break_id(function, (torch.ones(1),)) == "address-among-numbers"
    assert torch.equal(armature.compile(function, backend="eager")(torch.ones(1)), function(torch.ones(1)))


def test_a_copy_counts_as_written_to() -> None:
    """As torch counts it: a deep copy is given its memory."""

    def versions(x: torch.Tensor) -> tuple[int, ...]:
        made = copy.deepcopy(x)
        first = made._version
        made.add_(1)
        return first, made._version

    x = torch.ones(2)
    assert armature.compile(versions, backend="eager", fullgraph=True)(x) == versions(x) == (1, 2)


LOG: list[str] = []


class Asked:
    def __init__(self) -> None:
        self.held = [1]

    def __getattribute__(self, name: str) -> Any:
        LOG.append(name)
        return object.__getattribute__(self, name)


class FallsBack:
    def __init__(self) -> None:
        self.held = [1]

    def __getattr__(self, name: str) -> Any:
        LOG.append(name)
        raise AttributeError(name)


class Nothing(Asked):
    def __init__(self) -> None:
        pass


class Slots(Asked):
    __slots__ = ("kept",)


class Copies(FallsBack):
    def __getattr__(self, name: str) -> Any:
        LOG.append(name)
        return (lambda memo: "a copy") if name == "__deepcopy__" else object().missing  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Asked, FallsBack, Nothing, Slots, Copies])
@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_class_that_looks_up_attributes_is_asked_as_by_copy(kind: type, copying: Any, fullgraph: bool) -> None:
    def program(x, given):
        made = copying(given)
        return x + 1, made if isinstance(made, str) else (type(made), list(vars(made)), made is given)

    def asked(run: Any) -> Any:
        given = kind()
        LOG.clear()
        return str(run(torch.ones(2), given)), [*LOG]

    run = armature.compile(program, backend="eager", fullgraph=fullgraph)
    if fullgraph and kind is Slots:
        with pytest.raises(errors.Unsupported, match="Slots"):  # left to Python, which takes a break
            asked(run)
    else:
        assert asked(run) == asked(program)


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize(
    "held", [collections.deque([[1]], 3), collections.OrderedDict(a=[1]), {1}, types.SimpleNamespace(a=[1])]
)
def test_copies_where_the_program_handles_errors(copying: Any, held: Any) -> None:
    def program(x):
        y = x + 1
        try:
            return y, copying(held)
        except Exception as error:
            return y, error

    assert str(armature.compile(program, backend="eager")(torch.ones(2))) == str(program(torch.ones(2)))


@pytest.mark.parametrize("memo", [1, collections.UserDict()])
def test_a_memo_that_is_no_dict_is_asked_by_copy_itself(memo: Any) -> None:
    def program(x):
        y = x + 1
        try:
            return y, copy.deepcopy([1], memo)
        except AttributeError as error:
            return y, error

    assert str(armature.compile(program, backend="eager")(torch.ones(2))) == str(program(torch.ones(2)))
