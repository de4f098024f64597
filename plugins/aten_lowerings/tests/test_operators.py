"""What the wrapper calls for an operator takes all that the operator's schema says it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

import armature
from armature.codegen.externs import binding_of
from armature.torch_abi.operators import written_positions
from armature.torch_abi.pytree import tree_leaves, tree_map
from armature_aten_lowerings.operators import rows

aten = torch.ops.aten
ROWS_OF = {row.op: row for row in rows()}
ROWS = torch.arange(16.0).reshape(4, 4).sin()
BATCH = torch.arange(32.0).reshape(2, 4, 4).cos()
IMAGES, FILTERS = torch.arange(32.0).reshape(1, 2, 4, 4).sin(), torch.arange(16.0).reshape(2, 2, 2, 2).cos()
VECTOR, PLACES = torch.linspace(0.5, 2, 4), torch.tensor([3, 0, 1, 2])
# For each operator all arguments that its schema names. What may be left out or be None follows from the schema.
ARGUMENTS: dict[torch._ops.OpOverload, tuple[Any, ...]] = {
    aten.mm.default: (ROWS, ROWS),
    aten.bmm.default: (BATCH, BATCH),
    aten.addmm.default: (ROWS, ROWS, ROWS, 2, 0.5),
    aten.baddbmm.default: (BATCH, BATCH, BATCH, 2, 0.5),
    aten.mv.default: (ROWS, VECTOR),
    aten.convolution.default: (IMAGES, FILTERS, VECTOR[:2], [2, 1], [1, 0], [1, 1], False, [0, 0], 1),
    aten.index_select.default: (ROWS, 1, PLACES),
    aten.gather.default: (ROWS, 1, PLACES[:, None], True),
    aten.index_put.default: (ROWS, [PLACES], ROWS, True),
    aten.scatter_add.default: (ROWS, 1, PLACES[:, None], ROWS),
    aten.index_add.default: (ROWS, 0, PLACES, ROWS, 2),
    aten.cumsum.default: (ROWS, 1, torch.float64),
    aten.native_batch_norm.default: (ROWS, VECTOR, VECTOR, VECTOR, VECTOR, True, 0.1, 1e-5),
    aten.native_layer_norm.default: (ROWS, [4], VECTOR, VECTOR, 1e-5),
}


@attrs.frozen
class Formal:
    """An argument in a schema. kind: without what says that it may be None."""

    name: str
    kind: str
    optional: bool
    has_default: bool
    by_keyword_only: bool

    @classmethod
    def of(cls, argument: Any) -> Formal:
        kind = str(argument.type)
        optional = kind.startswith("Optional[")
        kind = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
        return cls(argument.name, kind, optional, argument.has_default_value(), argument.kwarg_only)


def call(fn: Any, target: torch._ops.OpOverload, args: dict[str, Any]) -> Any:
    formals = [Formal.of(one) for one in target._schema.arguments]
    args = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, args)  # some are written to
    given = [args[one.name] for one in formals if not one.by_keyword_only and one.name in args]
    return fn(*given, **{one.name: args[one.name] for one in formals if one.by_keyword_only and one.name in args})


def runs(target: torch._ops.OpOverload, args: dict[str, Any]) -> bool:
    try:
        call(target, target, args)
    except (RuntimeError, IndexError, ValueError):
        return False
    return True


def variants(target: torch._ops.OpOverload, args: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """With None where the schema allows it, in lists too; without the last ones that have defaults."""
    formals = [Formal.of(one) for one in target._schema.arguments]
    yield args
    yield {**args, **{one.name: None for one in formals if one.optional}}
    for one in formals:
        if one.optional:
            yield {**args, one.name: None}
        if one.kind == "List[Optional[Tensor]]":
            yield {**args, one.name: [None, *args[one.name]]}
            yield {**args, one.name: [*args[one.name], None]}
        if one.kind == "List[int]":
            yield {**args, one.name: tuple(args[one.name])}
    for one in reversed(formals):
        if not one.has_default:
            break
        args = {name: held for name, held in args.items() if name != one.name}
        yield args


def test_all_rows_are_compared() -> None:
    assert ARGUMENTS.keys() == {op for op, row in ROWS_OF.items() if row.reliable_strides or row.function}


@pytest.mark.parametrize("target", ARGUMENTS, ids=str)
def test_bindings_take_what_schemas_say(target: torch._ops.OpOverload) -> None:
    names = [one.name for one in target._schema.arguments]
    compared = 0
    for args in variants(target, dict(zip(names, ARGUMENTS[target], strict=True))):
        if not runs(target, args):  # None for one of two that stand together
            continue
        expected, found = call(target, target, args), call(binding_of(target, ROWS_OF), target, args)
        for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            assert torch.equal(one, other) and one.stride() == other.stride()
        compared += 1
    assert compared > sum(one.has_default_value() for one in target._schema.arguments)


def test_variants_are_those_of_the_schema() -> None:
    x, places = torch.zeros(2), torch.tensor([0])
    args = {"self": x, "indices": [places], "values": x, "accumulate": True}
    found = [variant.get("indices", ()) for variant in variants(aten.index_put.default, args)]
    assert [None, places] in found and [places, None] in found
    assert any("accumulate" not in variant for variant in variants(aten.index_put.default, args))


def first_axis_whole(x, mask, v):
    x = x * 2
    x[:, mask] = v
    return x + 1


def with_new_axis(x, mask, v):
    x = x * 2
    x[None, :, mask] = v
    return x.sum(0), x[:, mask]


@pytest.mark.parametrize("program", [first_axis_whole, with_new_axis])
@pytest.mark.parametrize("trains", [False, True])
def test_assignments_along_later_axes(program, trains):
    mask = torch.tensor([True, False, True, False])
    results = []
    for run in (program, armature.compile(program)):
        x, v = torch.linspace(-1, 1, 12).reshape(3, 4), torch.tensor(7.0)
        x.requires_grad_(trains)
        value = run(x, mask, v)
        first = value[0] if isinstance(value, tuple) else value
        if trains:
            first.square().sum().backward()
        results.append((value, x.grad))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("target", [op for op, row in ROWS_OF.items() if row.writes is not None], ids=str)
def test_running_statistics_stand_where_rows_say(target: torch._ops.OpOverload) -> None:
    names = [one.name for one in target._schema.arguments]
    assert names[3:6] == ["running_mean", "running_var", "training"]
    assert written_positions(target) in (frozenset(), frozenset((3, 4)))
    writes = ROWS_OF[target].writes
    assert writes is not None and [tuple(writes([None] * 5 + [training])) for training in (False, True)] == [(), (3, 4)]


@pytest.mark.parametrize("target", [op for op, row in ROWS_OF.items() if row.commutes], ids=str)
def test_operands_of_what_commutes_may_change_places(target: torch._ops.OpOverload) -> None:
    x, y = torch.arange(6) % 4, torch.arange(6) % 3
    assert torch.equal(target(x, y), target(y, x))
    assert callable(getattr(torch, target._opname))


class SharesInSpiteOfItsSchema(TorchDispatchMode):
    """Notes the operators whose results lie in their arguments' memory while their schemas promise new memory."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[torch._ops.OpOverload] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if all(result.alias_info is None for result in func._schema.returns):
            given = {_memory(t) for t in tree_leaves((args, kwargs))} - {None}
            if any(_memory(t) in given for t in tree_leaves(made)):
                self.found.add(func)
        return made


def _memory(value: object) -> int | None:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    storage = value.untyped_storage()
    return storage._cdata if storage.nbytes() else None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_operators_whose_schemas_do_not_tell_are_known() -> None:
    torch.manual_seed(0)
    watch = SharesInSpiteOfItsSchema()
    for op in op_db:
        if torch.float32 not in op.dtypes:
            continue
        for _, sample in zip(range(3), op.sample_inputs("cpu", torch.float32), strict=False):
            with watch, contextlib.suppress(Exception):  # what an operator refuses shares nothing
                op(sample.input, *sample.args, **sample.kwargs)
    assert watch.found, "the sweep has seen none of those that are known"
    for target in watch.found:
        assert target in ROWS_OF and ROWS_OF[target].may_return_view, f"{target} may give its argument back"
