"""torch.Size, device, dtype and their kin; numpy through torch's own numpy layer."""

# ruff: noqa: B009 - it is what is tested

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.tracing import check, programs

X = torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


def sizes(t):
    s = t.shape
    b, *rest = s
    return (
        s,
        s[0],
        s[:1],
        s[-1:],
        s + (4,),
        (4,) + s,
        len(s),
        s.numel(),
        b,
        rest,
        list(s),
        tuple(s),
        s == (2, 3),
        torch.Size([1, 2]),
        torch.Size([1]) + s,
        s == t.T.shape[::-1],
        isinstance(s, tuple),
        max(s),
        3 in s,
        s.index(3),
        s.count(2),
        hash(s) == hash((2, 3)),
        {s: 1}[t.shape],
        type(s[1:]),
        f"{s}",
        str(s),
        s * 2,
        torch.zeros(s),
        torch.zeros(*s),
        t.new_ones(s[1]),
    )


def devices(t):
    d = t.device
    return (
        d,
        d.type,
        d.index,
        d == torch.device("cpu"),
        torch.device("cpu", 0),
        str(d),
        torch.zeros(2, device=d),
        f"{d}",
        d.type == "cpu",
        {d: 1}[torch.device("cpu")],
        isinstance(d, torch.device),
        torch.device("cuda:1").index,
        t.to(d),
        t.is_cuda,
    )


def dtypes(t):
    d = t.dtype
    return (
        d, d.is_floating_point, d.is_complex, d.itemsize, d == torch.float32, torch.finfo(d).eps, torch.finfo(d).min, torch.iinfo(torch.int8).max, str(d), d.is_signed, t.to(torch.float16), {torch.float32: "f"}[d],
        torch.promote_types(torch.int8, torch.float16), torch.result_type(t, 1), d in (torch.float16, torch.float32), torch.get_default_dtype(), isinstance(d, torch.dtype), torch.finfo(torch.float16).bits, t.double().dtype,
        torch.can_cast(torch.float, torch.int), torch.float32.to_complex(), torch.is_floating_point(t), getattr(torch, "float16"), torch.finfo(d).tiny, torch.finfo(d).dtype, torch.zeros((), dtype=torch.bool).dtype,
    )  # fmt: skip


def abilities_of_the_cpu(t):
    tiles, vectors = torch.cpu._is_amx_tile_supported(), torch.cpu._is_avx512_supported()
    return t + tiles, tiles, vectors, torch.cpu._is_vnni_supported(), torch.cpu._is_avx2_supported()


def layouts(t):
    return (
        t.layout,
        t.layout == torch.strided,
        torch.contiguous_format,
        t.is_contiguous(memory_format=torch.contiguous_format),
        t.to(memory_format=torch.preserve_format),
    )


def return_types(t):
    m = t.max(1)
    values, indices = t.sort(1)
    return (
        m.values,
        m.indices,
        m[0],
        values,
        indices,
        len(m),
        isinstance(m, tuple),
        m,
        torch.linalg.qr(t).Q.shape,
        t.topk(1)._fields if hasattr(m, "_fields") else None,
        t.unbind(),
        t.split(1),
        torch.unique_consecutive is not None,
    )


def return_types_made(t):
    made = torch.return_types.min((t.sum(0), t.argmin(0)))
    doubled = torch.utils._pytree.tree_map(lambda one: one * 2, t.sort(1))
    return (
        made.values,
        made,
        type(made) is type(t.min(0)),
        doubled,
        doubled.indices,
        torch.return_types.linalg_qr([t, t + 1]),
    )


def constants_of_torch(t):
    return (
        torch.pi,
        torch.inf,
        torch.e,
        t * torch.pi,
        torch.newaxis is None,
        t[torch.newaxis].shape,
        torch.nan != torch.nan,
    )


def generators_of_names(t):
    return (
        torch.relu(t),
        torch.nn.functional.gelu(t),
        t.sum(0),
        hasattr(torch, "no_such"),
        torch.Tensor.relu(t),
        getattr(torch, "no_such", None),
    )


def numpy_scalars(t):
    return (
        t * float(np.float32(2.0)),
        np.sqrt(2.0) > 1,
        int(np.int64(3)),
        np.pi,
        t + np.float64(1.5),
        np.prod(t.shape) == 6,
        int(np.prod([2, 3])),
        np.float32(1.5) + 1 == 2.5,
        isinstance(np.float64(1.0), float),
    )


def numpy_dtypes(t):
    return np.float32 is np.float32, str(np.dtype("float32")), np.dtype(np.int8).itemsize, t


def numpy_of_tensors(t):
    a = t.numpy()
    b = np.sum(a * 2 + 1, axis=0)
    return (
        torch.from_numpy(b),
        torch.as_tensor(np.exp(a)),
        torch.tensor(a),
        a.shape,
        torch.from_numpy(a.reshape(-1)[1:]),
        torch.from_numpy(np.concatenate([a, a], axis=1)),
        torch.from_numpy(np.where(a > 0, a, 0.0).astype(np.float32)),
        torch.from_numpy(a.T @ a),
    )


def numpy_constants(t):
    grid = np.linspace(0, 1, 3)
    table = np.arange(6).reshape(2, 3)
    return (
        t * torch.from_numpy(table),
        torch.tensor(grid),
        torch.from_numpy(np.array([1.0, 2.0])),
        torch.as_tensor(np.zeros((2, 2), dtype=np.float32)),
        torch.from_numpy(np.eye(2)),
    )


def numpy_is_returned(t):
    return t.numpy() * 2


@pytest.mark.parametrize("program", programs(globals()))
def test_like_eager(program: Callable[..., Any]) -> None:
    check(program, X)


def uses_array(t, a):
    return t + torch.from_numpy(a), torch.from_numpy(a * 2), a.shape, a.ndim, a.dtype == np.float32


def uses_scalar(t, s):
    return t * s, s + 1 > 2


def uses_size(t, s):
    return t.reshape(s), len(s), s.numel()


def uses_dtype(t, d):
    return t.to(d), d.is_floating_point


@pytest.mark.parametrize(
    ("program", "argument"),
    [
        (uses_array, np.ones((2, 3), dtype=np.float32)), (uses_scalar, np.float64(2.5)), (uses_scalar, np.int64(3)), (uses_size, torch.Size([3, 2])),
        (uses_dtype, torch.float64), (uses_dtype, torch.int32),
    ],
    ids=lambda p: getattr(p, "__name__", type(p).__name__),
)  # fmt: skip
def test_objects_of_the_caller(program: Callable[..., Any], argument: Any) -> None:
    check(program, X, argument)
