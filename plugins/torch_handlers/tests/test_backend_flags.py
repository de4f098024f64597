"""Contexts that choose how torch's libraries compute."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import armature
from armature_torch_handlers.contexts import backend_flags, generators

pytestmark = pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")
B = torch.backends
X = torch.linspace(-1, 1, 8).reshape(2, 1, 2, 2)
SEEN: list[bool] = []
NOTES: Callable[[], bool] = lambda: B.mkldnn.enabled  # noqa: E731
LIBRARY = torch.library.Library("test_backend_flags", "DEF")
LIBRARY.define("look(Tensor x, bool fails) -> Tensor")


@torch.library.impl(LIBRARY, "look", "CPU")
def look(x: Tensor, fails: bool) -> Tensor:
    """A kernel that notes what it finds when it runs."""
    SEEN.append(NOTES())
    if fails:
        raise RuntimeError("failed inside")
    return x + 1


@torch.library.register_fake("test_backend_flags::look")
def _(x: Tensor, fails: bool) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    SEEN.clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TF32 acceleration")
        before = generators.settings_now()
        yield
    assert generators.settings_now() == before


def around(x: Tensor, fails: bool = False) -> Tensor:
    y = torch.ops.test_backend_flags.look(x * 2, False) * 2
    with torch.no_grad(), B.mkldnn.flags(enabled=False):
        y = torch.ops.test_backend_flags.look(y.relu(), fails) * 3
    return torch.ops.test_backend_flags.look(y + x, False) + 1


@pytest.mark.parametrize("learns", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
def test_kernels_find_the_flags_of_their_place(backend: str, learns: bool) -> None:
    compiled = armature.compile(around, backend=backend, fullgraph=True)
    x = X.clone().requires_grad_(learns)
    compiled(x)
    SEEN.clear()
    torch.testing.assert_close(compiled(x), around(x))
    assert SEEN == [True, False, True] * 2


@pytest.mark.parametrize("finds_gpu", [False, True])
def test_flags_of_libraries_for_gpus_are_set_where_torch_finds_one(
    finds_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: finds_gpu)
    monkeypatch.setattr(sys.modules[__name__], "NOTES", lambda: B.cudnn.enabled)

    def fn(x: Tensor) -> Tensor:
        with B.cudnn.flags(enabled=False):
            return torch.ops.test_backend_flags.look(x * 2, False) + 1

    compiled = armature.compile(fn, fullgraph=True)
    compiled(X)
    SEEN.clear()
    torch.testing.assert_close(compiled(X), X * 2 + 2)
    (found,) = SEEN
    assert found is not finds_gpu


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_an_error_inside_sets_the_flags_back(backend: str) -> None:
    compiled = armature.compile(lambda x: around(x, fails=True), backend=backend)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="failed inside"):
            compiled(X)
        assert B.mkldnn.enabled


def all_of_them(x: Tensor) -> Tensor:
    with B.nnpack.flags(False), B.cudnn.flags(False, benchmark=True), B.miopen.flags():
        x = x @ x
    with B.flags(fp32_precision="none"):
        return x @ x


def order_of_einsum(x: Tensor) -> Tensor:
    with B.opt_einsum.flags(enabled=None):
        return torch.einsum("abcd,abde->abce", x, x)


def nested(x: Tensor) -> Any:
    with B.cudnn.flags(enabled=False) as bound:
        x = x + B.cudnn.enabled
        with sdpa_kernel(SDPBackend.MATH), B.cudnn.flags(enabled=True, deterministic=True):
            x = x * 2 + B.cudnn.enabled
            asked = B.cuda.flash_sdp_enabled(), B.cuda.math_sdp_enabled(), B.cudnn.deterministic
        return x, bound, asked, B.cudnn.enabled, B.cudnn.fp32_precision == "none"


def left_again(x: Tensor) -> Any:
    first = B.cudnn.enabled
    with B.cudnn.flags(enabled=False):
        x = x + B.cudnn.enabled
    return x, first, B.cudnn.enabled


@pytest.mark.parametrize("fn", [all_of_them, order_of_einsum, nested, left_again], ids=lambda fn: fn.__name__)
def test_one_graph(fn: Callable[[Tensor], Any]) -> None:
    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), fn(X))


def test_every_library_with_flags_is_known() -> None:
    modules = (getattr(B, name) for name in dir(B))
    assert {one.flags.__module__ for one in modules if callable(getattr(one, "flags", None))} <= set(
        backend_flags.BY_MODULE
    )


def test_named_kernels_warn_as_they_are_deprecated() -> None:
    def fn(x: Tensor) -> Tensor:
        with B.cuda.sdp_kernel(enable_flash=False, enable_mem_efficient=False):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x) + B.cuda.flash_sdp_enabled()

    with pytest.warns(FutureWarning, match="deprecated"):
        found = armature.compile(fn, backend="eager", fullgraph=True)(X)
    with pytest.warns(FutureWarning, match="deprecated"):
        torch.testing.assert_close(found, fn(X))


@pytest.mark.parametrize("context", [lambda: B.mkldnn.flags(enabled=False), lambda: sdpa_kernel(SDPBackend.MATH)])
def test_a_break_inside(context: Callable[[], Any]) -> None:
    def fn(x: Tensor) -> Any:
        with context():
            x = x + 1
            armature.graph_break("here")
            return x * 2, B.mkldnn.enabled, B.cuda.flash_sdp_enabled()

    report = armature.explain(fn)(X)
    assert len(report.breaks) == 1
    compiled = armature.compile(fn, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(X), fn(X))


@pytest.mark.parametrize("wrong", [{"enable": False}, {"enabled": "no"}], ids=str)
def test_flags_that_torch_refuses(wrong: dict[str, Any]) -> None:
    def fn(x: Tensor) -> Tensor:
        with B.mkldnn.flags(**wrong):
            return x + 1

    for run in (fn, armature.compile(fn, backend="eager")):
        with pytest.raises((TypeError, RuntimeError), match=r"unexpected keyword|expects a bool"):
            run(X)
