"""Facts about torch's functions and Python's operators in captured graphs: which give the same results, which may raise
errors that depend on the values of tensors, what numbers among their arguments may be, which make sparse gradients."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import fx
from torch.nn import functional

from armature.plugin_api import Function, tensors_of
from armature_aten_lowerings.differentiable_numbers import DIFFERENTIABLE
from armature_aten_lowerings.masked_writes import gathers_unknown_number

# Functions that give the same for the same arguments, once arguments are named as those of the second one.
SAME: Mapping[Callable[..., object], Callable[..., object]] = {
    operator.add: torch.add,
    operator.sub: torch.sub,
    torch.subtract: torch.sub,
    operator.mul: torch.mul,
    torch.multiply: torch.mul,
    operator.truediv: torch.div,
    torch.divide: torch.div,
    torch.true_divide: torch.div,
    operator.matmul: torch.matmul,
    operator.neg: torch.neg,
    operator.pow: torch.pow,
    operator.eq: torch.eq,
    operator.ne: torch.ne,
    operator.lt: torch.lt,
    operator.le: torch.le,
    operator.gt: torch.gt,
    operator.ge: torch.ge,
    operator.invert: torch.bitwise_not,
    torch.swapaxes: torch.transpose,
    torch.swapdims: torch.transpose,
    torch.concat: torch.cat,
    torch.concatenate: torch.cat,
    functional.softmax: torch.softmax,
    torch.special.softmax: torch.softmax,
    functional.log_softmax: torch.log_softmax,
    functional.sigmoid: torch.sigmoid,
    functional.tanh: torch.tanh,
}
# Its number chooses the line that a warning names.
WITH_WARNINGS = (torch.softmax, torch.log_softmax)

REFLECTED = re.compile(r"_*r(floordiv|div|mod|pow)")  # the first argument is the divisor, or the power


def name_of(node: fx.Node) -> str:
    """The name of the function or method that a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def always(node: fx.Node) -> bool:
    """Such a function may raise whatever it is given."""
    return True


def by_tensors(node: fx.Node) -> bool:
    """Items at positions in a tensor may not exist."""
    nodes: list[fx.Node] = []
    fx.map_arg(node.args[1], nodes.append)
    return any(tensors_of(index) for index in nodes)


def with_integers(node: fx.Node) -> bool:
    """Integers are not divided by zero, and zero has no negative power."""
    known = not REFLECTED.match(name_of(node)) and any(
        isinstance(number, (int, float)) and number > 0 for number in node.args[1:2]
    )
    found = tensors_of(node)
    return any(tensor.is_complex() for tensor in found) or not (known or all(map(torch.is_floating_point, found)))


def with_mixed_dtypes(node: fx.Node) -> bool:
    """Kernels refuse tensors of several dtypes that fake tensors may accept."""
    return len({tensor.dtype for given in node.all_input_nodes for tensor in tensors_of(given)}) > 1


# By the beginning of their names; the first row that matches decides.
RAISING: Mapping[str, Callable[[fx.Node], bool]] = {
    r"_*(i?floordiv|floor_div|i?mod|remainder|fmod|div|i?pow|rpow|rmod|rfloordiv)": with_integers,
    (
        r"_*(r?matmul|\w*mm|mv|addmv|(bi)?linear|\w*conv\w*|einsum|v?dot|tensordot|inner|lerp|cross|\w*attention|"
        r"\w*_norm|lstm|gru|rnn)"
    ): with_mixed_dtypes,
    (
        r"(linalg_)?_*(index|gather|scatter|take|put|embedding|nll|cross_entropy|multi(?!ply)|one_hot|bincount|ctc|"
        r"repeat_interleave|masked_scatter|bernoulli|normal(?!ize)|poisson|binomial|cauchy|exponential|geometric|"
        r"log_normal|cholesky|inv|pinv|solve|triangular|lu|ldl|qr|svd|eig|lstsq|det(?!ach)|slogdet|logdet|matrix|"
        r"tensorinv|tensorsolve|cond|hist|quantile|nanquantile|tensor_split|max_unpool|fake_quantize|quantize|segment|"
        r"pack|pad_packed|assert|check|item|tolist|local_scalar)"
    ): always,
}  # fmt: skip


# Calls with a choice of sparse gradients: the argument that makes it, and its position.
SPARSE_GRADIENTS: Mapping[object, tuple[str, int]] = {
    functional.embedding: ("sparse", 6),
    functional.embedding_bag: ("sparse", 7),
    torch.embedding: ("sparse", 4),
    torch.embedding_bag: ("sparse", 5),
    torch.gather: ("sparse_grad", 3),
    "gather": ("sparse_grad", 3),
}
WITH_SPARSE_GRADIENTS = r"(embedding|embedding_bag|gather)$"


def chooses_sparse(node: fx.Node) -> bool:
    """Whether a call of these asks for a sparse gradient."""
    if node.target not in SPARSE_GRADIENTS:  # another function of that name
        return False
    name, position = SPARSE_GRADIENTS[node.target]
    return bool(node.kwargs.get(name, node.args[position] if position < len(node.args) else False))


# By their whole names, in any of torch's spellings: `add`, `add_`, `__add__`, `_foreach_add_`.
ANY_NUMBER = (
    r"(_foreach_)?_*("
    "add|sub|mul|div|truediv|floordiv|mod|pow|iadd|isub|imul|itruediv|ifloordiv|imod|ipow|multiply|subtract|divide|"
    "true_divide|floor_divide|fmod|remainder|addcmul|addcdiv|clamp|clamp_max|clamp_min|clip|lerp|maximum|minimum|where|"
    "gt|ge|lt|le|eq|ne|greater|greater_equal|less|less_equal|not_equal|masked_fill|index_fill|scatter|setitem|fill|"
    "full|full_like|new_full|linspace|logspace|scalar_tensor|copysign|xlogy|threshold|leaky_relu|elu|celu|softplus|"
    "hardshrink|baddbmm|renorm|normalize"
    r")_*$"
)
# Sizes depend on a number, or a derivative does.
NEEDS_NUMBERS = r"_*(arange|range|interpolate|upsample|local_response_norm)_*$"
# A number may come first only where kernels compute the same with a tensor there.
AS_TENSOR: Mapping[str, frozenset[int]] = {
    r"(add|sub|mul)$": frozenset({0, 1}),
    r"(truediv|div|(add|sub|mul|div)_|i(add|sub|mul|truediv))$": frozenset({1}),
}
# No operator says so.
CHANGES_STATE = r"(requires_grad_|set_data_|rename_|share_memory_)$"
WRITES_AT_INDICES = r"(setitem|index_put_?)$"
SUBTRACTIONS = r"(r?sub|isub|sub_|subtract_?|__[ri]?sub__)$"


def subtracts_bools(node: fx.Node) -> bool:
    """Real tensors refuse to subtract bools, fake tensors don't."""
    given = (one.meta.get("example_value") if isinstance(one, fx.Node) else one for one in node.args)
    return any(
        value.dtype is torch.bool if isinstance(value, torch.Tensor) else isinstance(value, bool) for value in given
    )


def rows() -> Iterable[Function]:
    """A row for each function, and for each pattern of names."""
    yield from (Function(fn, same_as=same) for fn, same in SAME.items())
    yield from (Function(fn, unused=frozenset({"_stacklevel"})) for fn in WITH_WARNINGS)
    yield from (Function(fn, raises=by_tensors) for fn in (operator.getitem, operator.setitem))
    yield from (Function(re.compile(names), raises=raises) for names, raises in RAISING.items())
    yield Function(re.compile(SUBTRACTIONS), as_captured=subtracts_bools)
    yield Function(sum, as_captured=always)  # adds in another order
    yield Function(re.compile(WRITES_AT_INDICES), as_captured=gathers_unknown_number)
    yield Function(re.compile(WITH_SPARSE_GRADIENTS), sparse_gradients=chooses_sparse)
    yield Function(re.compile(ANY_NUMBER), any_number=True)
    yield Function(re.compile(NEEDS_NUMBERS), needs_numbers=True)
    yield from (Function(re.compile(names), as_tensor=positions) for names, positions in AS_TENSOR.items())
    yield from (Function(re.compile(f"{name}$"), differentiable=does) for name, does in DIFFERENTIABLE.items())
    yield Function(re.compile(CHANGES_STATE), changes_state=True)
