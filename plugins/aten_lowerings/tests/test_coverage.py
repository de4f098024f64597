"""Which operators have loops: all that other compilers decompose or lower, except those listed here with the reason.

`data/lowered_elsewhere.txt` has the names in torch 2.13: overloads in torch's table of decompositions or in the registry
of another compiler's lowerings, functional, and not composed of others below autograd.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from armature import plugins
from armature.plugin_api import overload

NAMES = (Path(__file__).parent / "data" / "lowered_elsewhere.txt").read_text(encoding="utf-8").split()
LEFT = {
    "it makes memory, or none: nothing is computed": (
        "resize", "resize_as", "lift", "is_same_size", "_neg_view",
    ),
    "it checks, or tells about sizes": (
        "_assert_async.msg", "_assert_scalar", "_assert_tensor_metadata", "_functional_assert_async.msg",
        "_local_scalar_dense", "sym_constrain_range", "sym_constrain_range_for_size",
    ),
    "it draws random numbers": (
        "bernoulli", "_fused_dropout", "normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor",
        "normal.float_float", "randint", "randn",
    ),
    "a library's kernel, not in LIBRARIES because no graph of ours calls it": (
        "_scaled_grouped_mm", "_scaled_mm_v2", "_sparse_semi_structured_mm", "_weight_int4pack_mm_for_cpu",
        "_euclidean_dist", "cudnn_batch_norm", "cudnn_batch_norm_backward", "miopen_batch_norm",
        "miopen_batch_norm_backward",
    ),
    "of complex numbers, and a pass writes it as operators of their parts": ("complex", "polar"),
    "the size of its result depends on values": (
        "repeat_interleave.Tensor", "_jagged_to_padded_dense_forward", "_padded_dense_to_jagged_forward",
    ),
    "a loop until convergence, which torch.compile calls ATen for too": ("gcd", "lcm"),
    "torch's decomposition is wrong for few labels, and `margins.py` replaces the function": (
        "multilabel_margin_loss_forward",
    ),
    "on a CPU torch.compile has no loops either: places are counted one after the other": ("masked_scatter",),
    "no graph of ours has it": ("_foobar", "hann_window", "hann_window.periodic", "view_copy.dtype"),
}  # fmt: skip
REASONS = {name: reason for reason, names in LEFT.items() for name in names}


def is_decided(name: str) -> bool:
    """Whether the operator is lowered, decomposed, or left to a library."""
    tables, op = plugins.manager().tables(), overload(name.removesuffix(".default"))
    if op is None:
        return True  # this torch does not have it
    row = tables.operators.get(op)
    return bool(tables.lowering_chain(op)) or op in tables.decompositions or (row is not None and bool(row.library))


@pytest.mark.parametrize("name", NAMES)
def test_each_operator_is_decided(name: str) -> None:
    short = name.removesuffix(".default")
    if short in REASONS:
        assert overload(short) is None or not is_decided(name), "it has loops now: remove it from the list"
    else:
        assert is_decided(name), "neither lowered, decomposed, left to a library, nor listed with a reason"


def test_the_list_names_known_operators() -> None:
    known = {name.removesuffix(".default") for name in NAMES}
    assert set(REASONS) <= known, sorted(set(REASONS) - known)
