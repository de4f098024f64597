"""What rows tell of torch's functions: which nodes of a graph may raise when it runs with numbers, though they do not
with fakes; which are the same call."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from armature.graph.spellings import function_of, spelled
from armature.torch_abi.functions import Functions
from armature_aten_lowerings.functions import rows

KNOWN = Functions.of(rows())
FLOATS, INTS, SQUARE, HALVES = torch.ones(3), torch.zeros(3, dtype=torch.int64), torch.zeros(3, 3), torch.ones(3).half()
SLOPING = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
RAISING: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "an index out of range": (torch.index_select, (FLOATS, 0, INTS + 7)),
    "an item out of range": (operator.getitem, (FLOATS, INTS + 7)),
    "a division of ints by zero": (operator.floordiv, (INTS, INTS)),
    "a division of ints by the number zero": (operator.floordiv, (INTS, 0)),
    "a division of a number by zeros": (torch.remainder, (7, INTS)),
    "a negative power of ints": (torch.pow, (INTS, -1)),
    "a probability above one": (torch.bernoulli, (FLOATS + 1,)),
    "a matrix without an inverse": (torch.linalg.inv, (SQUARE,)),
    "a matrix that is not positive": (torch.linalg.cholesky, (SQUARE - 1,)),
    "a product of several dtypes": (torch.dot, (FLOATS, HALVES)),
}
QUIET: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a sum": (torch.add, (FLOATS, FLOATS)),
    "a division of floats by zero": (operator.truediv, (FLOATS, FLOATS - 1)),
    "a division of ints by a number": (torch.floor_divide, (INTS, 4)),
    "a remainder of ints": (operator.mod, (INTS, 4)),
    "a square of ints": (operator.pow, (INTS, 2)),
    "a slice": (operator.getitem, (FLOATS, slice(1, 2))),
    "a product": (torch.multiply, (FLOATS, FLOATS)),
    "a norm": (torch.linalg.vector_norm, (FLOATS,)),
    "a product of one dtype": (torch.mv, (SQUARE, FLOATS)),
}


def node_of(function: Callable[..., Any], arguments: tuple[Any, ...], result: object) -> fx.Node:
    graph = fx.Graph()
    given = []
    for position, argument in enumerate(arguments):
        if isinstance(argument, torch.Tensor):
            given.append(graph.placeholder(f"x{position}"))
            given[-1].meta["example_value"] = argument
        else:
            given.append(argument)
    node = graph.call_function(function, tuple(given))
    node.meta["example_value"] = result
    return node


@pytest.mark.parametrize("name", RAISING)
def test_what_raises_for_its_numbers_may_raise(name: str) -> None:
    function, arguments = RAISING[name]
    with pytest.raises(Exception, match=r"."):
        function(*arguments)
    assert KNOWN.may_raise(
        node_of(function, arguments, INTS if arguments[-1] is INTS or arguments[0] is INTS else FLOATS)
    )


@pytest.mark.parametrize("name", QUIET)
def test_what_never_raises_does_not_end_a_graph(name: str) -> None:
    function, arguments = QUIET[name]
    assert not KNOWN.may_raise(node_of(function, arguments, function(*arguments)))


def test_rows_say_which_calls_are_the_same() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    one = graph.call_function(torch.nn.functional.softmax, (x,), {"dim": 1, "_stacklevel": 5})
    other = graph.call_method("softmax", (x, 1))
    assert function_of(one, KNOWN) is function_of(other, KNOWN) is torch.softmax
    assert spelled(one, KNOWN) == spelled(other, KNOWN)
    assert function_of(one) is torch.nn.functional.softmax


@pytest.mark.parametrize("name", ["add", "add_", "__radd__", "_foreach_add_", "clamp_min"])
def test_any_number_is_known_by_the_whole_name(name: str) -> None:
    known = KNOWN.takes_any_number(name)
    assert known is (name != "__radd__")
    assert not KNOWN.takes_any_number(f"{name}_mm")


@pytest.mark.parametrize("fn", [torch.arange, torch.nn.functional.interpolate, "arange"])
def test_numbers_that_decide_sizes_are_needed(fn: Any) -> None:
    assert KNOWN.needs_numbers(fn)
    assert not KNOWN.needs_numbers(torch.add) and not KNOWN.needs_numbers("arange_of_ids")


def test_a_number_as_a_tensor_may_come_first_where_the_result_is_the_same() -> None:
    assert KNOWN.tensor_positions(operator.add) == KNOWN.tensor_positions("mul") == {0, 1}
    assert KNOWN.tensor_positions(operator.truediv) == KNOWN.tensor_positions("add_") == {1}
    assert not KNOWN.tensor_positions("addmm") and not KNOWN.tensor_positions(operator.pow)


@pytest.mark.parametrize(
    ("fn", "given"),
    [
        (torch.pow, (SLOPING, 2.5)),
        (operator.pow, (1.5, SLOPING)),
        (torch.Tensor.lerp, (SLOPING, SLOPING * SLOPING, 0.3)),
        (torch.nn.functional.celu, (SLOPING - 1, 0.7)),
        (torch.linalg.vector_norm, (SLOPING, 3.0)),
        (torch.special.xlog1py, (SLOPING, 0.4)),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_functions_of_numbers_that_vary_have_the_same_results_and_derivatives(
    fn: Callable[..., Any], given: tuple[Any, ...]
) -> None:
    does = KNOWN.differentiable(fn)
    assert does is not None and does is not fn
    expected, found = fn(*given), does(*given)
    torch.testing.assert_close(found, expected)
    pulled = [torch.autograd.grad(one.sum(), SLOPING, retain_graph=True) for one in (found, expected)]
    torch.testing.assert_close(*pulled)


def test_other_functions_keep_their_derivatives() -> None:
    assert KNOWN.differentiable("pow") is KNOWN.differentiable(torch.Tensor.__pow__)
    assert KNOWN.differentiable(torch.add) is None and KNOWN.differentiable("power") is None


def test_methods_that_change_state_write_no_elements() -> None:
    assert KNOWN.changes_state("requires_grad_") and KNOWN.changes_state(torch.Tensor.share_memory_)
    assert not KNOWN.changes_state("add_") and not KNOWN.changes_state("requires_grad_of_")


@pytest.mark.parametrize("fn", [torch.sub, torch.rsub, operator.isub])
def test_a_subtraction_of_bools_runs_as_captured(fn: Callable[..., Any]) -> None:
    bools = FLOATS > 0
    assert KNOWN.runs_as_captured(node_of(fn, (bools, bools), bools))
    assert KNOWN.runs_as_captured(node_of(fn, (FLOATS, True), FLOATS))
    assert not KNOWN.runs_as_captured(node_of(fn, (FLOATS, FLOATS), FLOATS))


def test_a_call_chooses_whether_its_gradient_is_sparse() -> None:
    places = torch.zeros(3, dtype=torch.int64)
    for fn in (torch.nn.functional.embedding, torch.gather):
        dense = node_of(fn, (FLOATS, 0, places), FLOATS)
        assert not KNOWN.has_sparse_gradient(dense)
    dense.kwargs = {"sparse_grad": True}
    assert KNOWN.has_sparse_gradient(dense)
    assert KNOWN.has_sparse_gradient(node_of(torch.embedding, (SQUARE, places, -1, False, True), SQUARE))
    method = dense.graph.call_method("gather", (*dense.args, True))
    assert KNOWN.has_sparse_gradient(method)

    def gather(*args: Any) -> Any:
        return args[0]

    assert not KNOWN.has_sparse_gradient(node_of(gather, (FLOATS, 0, places, True), FLOATS))


def test_pythons_sum_runs_as_captured() -> None:
    assert KNOWN.runs_as_captured(node_of(sum, (FLOATS,), FLOATS[0]))
    assert not KNOWN.runs_as_captured(node_of(torch.sum, (FLOATS,), FLOATS[0]))
