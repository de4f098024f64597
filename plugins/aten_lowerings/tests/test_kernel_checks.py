"""What kernels refuse for its dtypes or sizes, compiled functions refuse in the same words; what they take, is taken."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature import config
from armature.errors import ArmatureWarning
from armature.plugins import manager
from armature.torch_abi.fake import FakeWorld
from armature_aten_lowerings.kernel_checks import CHECKS, OF_TWO, SPECIAL

aten = torch.ops.aten
PLACES = torch.tensor([0, 2])
MASK = torch.tensor([True, False, True])
Program = Callable[[Tensor, Tensor], Tensor]


def put(index: Tensor) -> Program:
    def program(x: Tensor, value: Tensor) -> Tensor:
        x = x * 1
        x[index] = value
        return x

    return program


def double(*sizes: int) -> Tensor:
    return torch.rand(sizes, dtype=torch.float64)


CALLS: dict[str, tuple[Program, Tensor]] = {
    "setitem": (put(PLACES), double(4)),
    "setitem under a mask": (put(MASK), double(4)),
    "a number under a mask": (put(MASK), double()),
    "one number under a mask": (put(MASK), double(1)),
    "a number at places": (put(PLACES), double()),
    "index_put": (lambda x, v: x.index_put((PLACES,), v), torch.ones(4, dtype=torch.int64)),
    "index_add": (lambda x, v: x.index_add(0, PLACES, v), double(2, 4)),
    "index_copy": (lambda x, v: x.index_copy(0, PLACES, v), double(2, 4)),
    "index_fill": (lambda x, v: x.index_fill(0, PLACES, v), double()),
    "index_select": (lambda x, v: x.index_select(0, v), double(1)),
    "index_select, int32": (lambda x, v: x.index_select(0, v), torch.ones(1, dtype=torch.int32)),
    "scatter": (lambda x, v: x.scatter(0, PLACES[:, None], v), double(2, 4)),
    "masked_scatter": (lambda x, v: x.masked_scatter(x > 0.5, v), double(3, 4)),
    "layer_norm": (lambda x, v: F.layer_norm(x, (4,), v), double(4)),
    "layer_norm, narrow": (lambda x, v: F.layer_norm(x.bfloat16(), (4,), v), torch.rand(4)),
    "layer_norm, wide": (lambda x, v: F.layer_norm(x, (4,), v), torch.rand(4).bfloat16()),
    "batch_norm": (lambda x, v: F.batch_norm(x, None, None, v, training=True), double(4)),
    "batch_norm, narrow": (lambda x, v: F.batch_norm(x.bfloat16(), None, None, v, training=True), torch.rand(4)),
    "batch_norm, running": (lambda x, v: F.batch_norm(x, v, v + 1), double(4)),
    "batch_norm, running narrow": (lambda x, v: F.batch_norm(x, v, v + 1, training=True), torch.rand(4).bfloat16()),
    "huber": (lambda x, v: F.huber_loss(x, v), double(3, 4)),
    "smooth_l1": (lambda x, v: F.smooth_l1_loss(x, v), double(3, 4)),
    "mse": (lambda x, v: F.mse_loss(x, v), double(3, 4)),
    "binary_cross_entropy": (lambda x, v: F.binary_cross_entropy(x, v), double(3, 4)),
    "weights of nll": (lambda x, v: F.nll_loss(x, torch.tensor([0, 1, 2]), v), double(4)),
    "cross_entropy": (lambda x, v: F.cross_entropy(x, v), double(3, 4)),
    "select_scatter, more": (lambda x, v: x.select_scatter(v, 0, 1), torch.rand(1, 4)),
    "select_scatter, fewer": (lambda x, v: x.select_scatter(v, 0, 1), torch.rand(3)),
    "slice_scatter, fewer": (lambda x, v: x.slice_scatter(v, 0, 0, 3), torch.rand(2, 4)),
    "slice_scatter, one": (lambda x, v: x.slice_scatter(v, 0, 0, 3), torch.rand(1, 4)),
    "slice_scatter": (lambda x, v: x.slice_scatter(v, 1, 0, 3, 2), torch.rand(3, 2)),
    "diagonal_scatter, more": (lambda x, v: x.diagonal_scatter(v, 3), torch.rand(3)),
    "diagonal_scatter": (lambda x, v: x.diagonal_scatter(v, 1), torch.rand(3)),
    "matmul": (lambda x, v: x @ v, double(4, 4)),
}


def outcome(program: Program, *args: Tensor) -> Any:
    try:
        result = program(*(arg.clone() for arg in args))
    except Exception as error:
        return type(error), str(error)
    return result.dtype, result.shape


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_operands_are_refused_and_taken_as_in_eager_mode(name: str) -> None:
    program, other = CALLS[name]
    x = torch.rand(3, 4)
    assert outcome(armature.compile(lambda x, v: program(x, v)), x, other) == outcome(program, x, other)


AT_PLACES: dict[str, Program] = {
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "take_along_dim": lambda x, i: x.take_along_dim(i[:, None], 0),
    "index_select": lambda x, i: x.index_select(0, i),
    "items": lambda x, i: x[i],
    "take": lambda x, i: x.take(i),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 9.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:1]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:1]),
    "index_copy, one": lambda x, i: x.index_copy(0, i[0], x[:1]),
    "index_copy, in one row": lambda x, i: x[0].index_copy(0, i[0], x[1, 1]),
    "index_fill": lambda x, i: x.index_fill(0, i, 3.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:1], "amax"),
    "index_put": lambda x, i: x.index_put((i,), x[0]),
    "put": lambda x, i: x.put(i, x[0, :1]),
    "nll_loss": lambda x, i: F.nll_loss(x[:1], i),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:1], i),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", AT_PLACES)
def test_places_before_the_first_count_from_the_end_where_eager_counts_so(name: str) -> None:
    """Others are refused: by all kernels, in the words of eager mode."""
    program, x = AT_PLACES[name], torch.rand(3, 4)
    quick = armature.compile(lambda x, i: program(x, i) * 2, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ArmatureWarning)  # of what only one of them refuses
        for place in (2, -1, -4, 12):
            found = outcome(quick, x, torch.tensor([place]))
            assert found == outcome(lambda x, i: program(x, i) * 2, x, torch.tensor([place])), place
            if isinstance(found[0], torch.dtype):
                given = x, torch.tensor([place])
                torch.testing.assert_close(quick(*given), program(*given) * 2)


GAMMA = (aten.igamma.default, aten.igammac.default)
NUMBERS = {"n_scalar": 1, "other_scalar": 1, "x_scalar": 0, "self_scalar": 0}  # which operand is one


def operands(op: Any, x: Tensor, v: Tensor) -> list[Any]:
    """What an operator of two operands is called with: a number where it takes one."""
    found: list[Any] = [x, v]
    if op._overloadname in NUMBERS:
        found[NUMBERS[op._overloadname]] = 2.0
    return found


DIRECT: dict[Any, Callable[[Tensor, Tensor], Any]] = {
    aten.select.int: lambda x, v: aten.select.int(x, 1, 2),
    aten._softmax.default: lambda x, v: aten._softmax.default(x, 1, False),
    aten._log_softmax.default: lambda x, v: aten._log_softmax.default(x, 1, False),
    aten.index_put.default: lambda x, v: aten.index_put.default(x, [torch.arange(2)], v[:2]),
    aten.index_put_.default: lambda x, v: aten.index_put_.default(x, [torch.arange(2)], v[:2]),
    aten._unsafe_index_put.default: lambda x, v: aten._unsafe_index_put.default(x, [torch.arange(2)], v[:2]),
    aten.index_add.default: lambda x, v: aten.index_add.default(x, 0, torch.arange(2), v[:2]),
    aten.index_add_.default: lambda x, v: aten.index_add_.default(x, 0, torch.arange(2), v[:2]),
    aten.index_copy.default: lambda x, v: aten.index_copy.default(x, 0, torch.arange(2), v[:2]),
    aten.index_copy_.default: lambda x, v: aten.index_copy_.default(x, 0, torch.arange(2), v[:2]),
    aten.select_scatter.default: lambda x, v: aten.select_scatter.default(x, v[0], 0, 1),
    aten.slice_scatter.default: lambda x, v: aten.slice_scatter.default(x, v[:2], 0, 0, 2),
    aten.diagonal_scatter.default: lambda x, v: aten.diagonal_scatter.default(x, v[0, :3], 0),
    aten.index_select.default: lambda x, v: aten.index_select.default(x, 0, v[0]),
    aten.huber_loss.default: lambda x, v: aten.huber_loss.default(x, v),
    aten.binary_cross_entropy.default: lambda x, v: aten.binary_cross_entropy.default(x, v),
    aten.nll_loss_forward.default: lambda x, v: aten.nll_loss_forward.default(x, torch.arange(3), v[0], 1, -100),
    aten.nll_loss2d_forward.default: lambda x, v: aten.nll_loss2d_forward.default(
        x[:, :, None, None], torch.zeros(3, 1, 1, dtype=torch.int64), v[0], 1, -100
    ),
    aten.native_layer_norm.default: lambda x, v: aten.native_layer_norm.default(x, [4], v[0], v[0], 1e-5),
    aten.native_batch_norm.default: lambda x, v: aten.native_batch_norm.default(
        x, v[0], v[0], v[1], v[1], True, 0.1, 1e-5
    ),
    aten._native_batch_norm_legit.default: lambda x, v: aten._native_batch_norm_legit.default(
        x, v[0], v[0], v[1], v[1], True, 0.1, 1e-5
    ),
    aten._native_batch_norm_legit_functional.default: lambda x, v: aten._native_batch_norm_legit_functional.default(
        x, v[0], v[0], v[1], v[1], True, 0.1, 1e-5
    ),
    aten._native_batch_norm_legit.no_stats: lambda x, v: aten._native_batch_norm_legit.no_stats(
        x, v[0], v[0], True, 0.1, 1e-5
    ),
    aten._native_batch_norm_legit_no_training.default: lambda x, v: aten._native_batch_norm_legit_no_training.default(
        x, v[0], v[0], v[1], v[1], 0.1, 1e-5
    ),
    # torch has no derivatives of these: a tuple is not differentiated
    **{packet.default: lambda x, v, op=packet.default: (op(x.detach()),) for packet in SPECIAL},
    **{op: lambda x, v, op=op: (op(*operands(op, x.detach(), v)),) for op in (*OF_TWO, *GAMMA)},
}


def put_at(x: Tensor, rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    x = x * 1
    x[rows, columns] = values
    return x


@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_of_places_that_vary_are_equal_where_eager_mode_wants_them_to_be(dynamic: bool | None) -> None:
    """torch's fakes of `index_put` compare neither the indices nor the values."""
    armature.reset()
    compiled, x = armature.compile(put_at, dynamic=dynamic), torch.rand(8, 9)
    with config.patch(strict=True):
        for rows, columns, values in ((3, 3, 3), (5, 5, 5), (4, 4, 1), (6, 6, 6), (1, 6, 6), (6, 1, 6)):
            given = x, torch.randperm(8)[:rows], torch.randperm(8)[:columns], torch.rand(values)
            torch.testing.assert_close(compiled(*given), put_at(*given), rtol=0, atol=0)
        for rows, columns, values in ((5, 3, 5), (3, 5, 3), (5, 5, 4), (1, 1, 5)):
            given = x, torch.randperm(8)[:rows], torch.randperm(8)[:columns], torch.rand(values)
            with pytest.raises((IndexError, RuntimeError), match="shape mismatch"):
                put_at(*given)
            with pytest.raises((IndexError, RuntimeError), match="shape mismatch"):
                compiled(*given)


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_values_that_do_not_fit_the_places_raise_in_the_first_call_too(backend: str) -> None:
    armature.reset()
    places = torch.tensor([0, 1])
    with pytest.raises(RuntimeError, match="shape mismatch: value tensor of shape"):
        armature.compile(put_at, backend=backend)(torch.zeros(3, 4), places, places, torch.ones(3))


def forth_and_back(result: Any) -> None:
    if isinstance(result, Tensor):
        result.sum().backward()


def refuses(run: Callable[[], Any]) -> bool:
    try:
        run()
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("op", CHECKS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("of_first", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_operators_with_a_check_refuse_what_their_kernels_or_those_of_the_way_back_refuse(
    op: Any, dtype: torch.dtype, of_first: torch.dtype
) -> None:
    call, world = DIRECT[op], FakeWorld(rules=manager().tables().fake_rules)
    x, other = torch.full((3, 4), 0.5).to(of_first), torch.zeros(3, 4).to(dtype)
    wanted = refuses(lambda: forth_and_back(call(x.clone().requires_grad_().clone(), other)))
    with world.mode:
        fakes = world.of(x), world.of(other)
        found = refuses(lambda: call(*fakes))
    assert found == wanted
