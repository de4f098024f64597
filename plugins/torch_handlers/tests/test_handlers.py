"""What the handlers answer, run compiled and in eager mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.strict_mode import strict_mode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import armature
from armature.api import public as api
from armature.plugin_api import CHECK
from armature.testing.handler_kit import Case, HandlerConformance
from armature_torch_handlers import plugin, recurrent
from armature_torch_handlers.contexts import attention


def ones() -> tuple[Tensor]:
    return (torch.ones(2, 3),)


WEIGHT = torch.ones(3, requires_grad=True)


def weighted(x: Tensor) -> Tensor:
    return x * WEIGHT


def hinted(x: Tensor) -> Any:
    return hints_wrapper(weighted, (x,), {}, hints={})


def inverted(x: Tensor) -> Tensor:
    """Tracing asks numpy with zeros, which have no inverse; these numbers have one."""
    return x + torch.from_numpy(np.linalg.inv((torch.eye(3) * x.mean()).numpy()))[:2]


class SetsKept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx._materialize_non_diff_grads = False
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 2


def reduced_later(x: Tensor) -> Tensor:
    torch.distributed.all_reduce(x.clone(), async_op=True)
    return x + 1


def leaf() -> tuple[Tensor]:
    return (torch.ones(2, 3, requires_grad=True),)


def scripting(x: Tensor) -> Tensor:
    if torch.jit.is_scripting() or torch.jit.is_tracing() or torch.onnx.is_in_onnx_export():
        return x - 1
    return x + 1


def annotated(x: Tensor) -> Tensor:
    parts = torch.jit.annotate(list[torch.Tensor], [])
    parts.append(x + 1)
    found = torch.jit.annotate(the_type=Optional[int], the_value=None)  # noqa: UP045  one of typing's objects
    return parts[0] if found is None else x


def settings(x: Tensor) -> Tensor:
    if torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and not torch.is_inference_mode_enabled():
        x = x + 1
    return x.to(torch.get_default_dtype())


def accelerator(x: Tensor) -> Tensor:
    return x + 1 if torch._utils._get_available_device_type() is None else x + 2


def facts(x: Tensor) -> Tensor:
    if torch.is_tensor(x) and torch.is_floating_point(x) and not torch.is_complex(x) and not torch.is_tensor(3):
        return x * torch.numel(x)
    return x


def dtypes(x: Tensor) -> Tensor:
    return x.to(torch.result_type(x, 2j)) if torch.is_same_size(x, x) else x


def checked(x: Tensor) -> Tensor:
    torch._check(x.dim() == 2, lambda: "two dimensions")
    torch._check_is_size(x.shape[0])
    torch._assert(x.shape[1] == 3, "three columns")
    return x + 1


def wrong_check(x: Tensor) -> Tensor:
    torch._check_index(x.dim() == 3, lambda: f"{x.dim()} dimensions")
    return x + 1


def wrong_assert(x: Tensor) -> Tensor:
    torch._assert(x.dim() == 3, "three dimensions")
    return x + 1


def asserted(x: Tensor) -> Tensor:
    torch._assert((x > 0).all(), "positive")
    return x.log()


def constants(x: Tensor) -> Tensor:
    return x + torch.tensor([1.0, 2.0, 3.0]) + torch.tensor(2)


def copied(x: Tensor) -> Tensor:
    return torch.tensor(x, dtype=torch.float64) + 1


def listed(x: Tensor) -> Tensor:
    return torch.tensor([x.sum(), x.max()])


def parameter(x: Tensor) -> Tensor:
    return x * nn.Parameter(torch.ones(3))


def setting_changed(x: Tensor) -> Tensor:
    torch.set_flush_denormal(False)
    return x + 1


def empties_cache(x: Tensor) -> Tensor:
    x = x * 2
    torch.cuda.empty_cache()
    return x + 1


def without_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        y = x * 2
        inner = torch.is_grad_enabled()
    return (y if not inner else x), x * 3


@torch.no_grad()
def decorated(x: Tensor) -> Tensor:
    return x * 2


def nested_grad(x: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        a = x + 1
        with torch.enable_grad():
            b = x + 2
        c = x + 3
        with torch.set_grad_enabled(True):
            d = x + 4
    return a, b, c, d


def inference(x: Tensor) -> tuple[Tensor, ...]:
    @torch.inference_mode
    def twice(x: Tensor) -> Tensor:
        return x * 2

    with torch.inference_mode(False):
        y = x + 1
    return twice(x), y


def inference_guard(x: Tensor) -> Tensor:
    with torch._C._InferenceMode(True):
        return x * 2


def broken(x: Tensor) -> Tensor:
    api.graph_break("here")
    return x + 1


def overridden(x: Tensor) -> Tensor:
    if torch.overrides.has_torch_function((x, None)) or torch.overrides.has_torch_function_unary(x):
        return x - 1
    return x + 1


def autocast(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        with torch.autocast("cpu", enabled=False):
            z = x @ x.T
    return y, z + (x @ x.T)


def chosen_kernels(x: Tensor) -> Tensor:
    query = x.view(1, 1, 2, 3)
    with sdpa_kernel([SDPBackend.MATH]):
        first = F.scaled_dot_product_attention(query, query, query)
    with sdpa_kernel(SDPBackend.MATH):
        return first + F.scaled_dot_product_attention(query, query, query, is_causal=True)


def ranges(x: Tensor) -> Tensor:
    with torch.profiler.record_function("outer"), torch.autograd.profiler.record_function("inner"):
        return x + 1


def checkpointed(x: Tensor) -> Tensor:
    return checkpoint(lambda y, scale: y.sin() * scale, x, scale=3, use_reentrant=False)


def reentrant(x: Tensor) -> Tensor:
    return checkpoint(lambda y: y.sin() * 2, x, use_reentrant=True)


def reentrant_in_list(x: Tensor) -> Tensor:
    return checkpoint(lambda y: [y.sin()], x, use_reentrant=True)[0] * 2


def cast_by_decorator(x: Tensor) -> Tensor:
    return in_bfloat16(x) + 1


@torch.autocast("cpu", dtype=torch.bfloat16)
def in_bfloat16(x: Tensor) -> Tensor:
    return x @ x.T


def chosen(x: Tensor) -> Tensor:
    found: Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    return found


class Counted(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        Counted.calls += 1
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


def counted(x: Tensor) -> Tensor:
    found: Tensor = Counted.apply(x)
    return found + 1


def level(x: Tensor) -> Tensor:
    torch._C._functorch._grad_increment_nesting()
    torch._C._functorch._grad_decrement_nesting()
    return x + 1


@pytest.mark.filterwarnings(
    "ignore:(_check_is_size|To copy construct|The given buffer is not writable|flex_attention called)"
)
class TestHandlers(HandlerConformance):
    plugin = plugin
    cases = (
        Case("scripting", scripting, ones, absent=(torch.jit.is_scripting,)),
        Case("annotated", annotated, ones, absent=(torch.jit.annotate,)),
        Case("settings", settings, leaf),
        Case("accelerator", accelerator, ones, absent=(torch._utils._get_available_device_type,)),
        Case("facts", facts, ones, absent=(torch.numel, torch.is_tensor, torch.is_floating_point)),
        Case("dtypes", dtypes, ones, absent=(torch.result_type,)),
        Case("checked", checked, ones, absent=(torch._check,)),
        Case("wrong check", wrong_check, ones, breaks="exception-leaves-frame", raises=IndexError),
        Case("wrong assert", wrong_assert, ones, breaks="exception-leaves-frame", raises=AssertionError),
        Case("asserted", asserted, ones, present=(CHECK,)),
        Case("constants", constants, ones, present=(torch.tensor,)),
        Case("copied", copied, ones, absent=(torch.tensor,)),
        Case("listed", listed, ones, present=(torch.stack,), absent=(torch.tensor,)),
        Case("listed rows", lambda x: torch.tensor([x, x]), ones, breaks="tensor-of-tensors", raises=ValueError),
        Case("parameter", parameter, ones),
        Case("buffer", lambda x: x * nn.Buffer(torch.ones(3)), ones),
        Case("buffer with a gradient", lambda x: x * nn.Buffer(x), leaf, breaks="creates-buffer"),
        Case("setting changed", setting_changed, ones, breaks="global-state"),
        Case("memory of GPUs freed", empties_cache, ones, breaks="global-state" if torch.cuda.is_available() else ""),
        Case("without grad", without_grad, leaf, present=(torch._C._set_grad_enabled,)),
        Case("decorated", decorated, leaf, present=(torch._C._set_grad_enabled,)),
        Case("nested grad", nested_grad, leaf),
        Case("autocast", autocast, leaf, present=(torch.amp.autocast_mode._enter_autocast,)),
        Case("autocast as decorator", cast_by_decorator, ones, present=(torch.amp.autocast_mode._enter_autocast,)),
        Case("sdpa_kernel", chosen_kernels, ones, present=(attention.enter_sdpa_kernel,)),
        Case("profiler", ranges, ones),
        Case("checkpoint", checkpointed, leaf),
        Case("reentrant checkpoint", reentrant, leaf),
        Case("reentrant checkpoint of a list", reentrant_in_list, leaf, breaks="reentrant-checkpoint"),
        Case(
            "foreign memory",
            lambda x: x + torch.frombuffer(b"abcd", dtype=torch.uint8)[0],
            ones,
            breaks="foreign-memory",
        ),
        Case("inference", inference, ones),
        Case("guard of inference mode", inference_guard, ones, breaks="inference-mode"),
        Case("cond", chosen, ones, present=(torch.ops.higher_order.cond,)),
        Case(
            "cond that gives its input",
            lambda x: torch.cond(x.sum() > 0, torch.sin, lambda a: a, (x,)),
            ones,
            breaks="cond-branches",
        ),
        Case("function with a side effect", counted, leaf, breaks="autograd-function"),
        Case("level", level, ones, breaks="transform-level"),
        Case("array that numpy refuses", inverted, ones, breaks="array-function-fails"),
        Case("hints around a function that learns", hinted, ones, breaks="hints-wrapper"),
        Case("strict mode around one", lambda x: strict_mode(weighted, (x,)), ones, breaks="hints-wrapper"),
        Case(
            "score of another size",
            lambda x: flex_attention(*[x.new_ones(1, 2, 16, 8)] * 3, score_mod=lambda s, b, h, i, j: s + x),
            ones,
            breaks="flex-attention-arguments",
            raises=RuntimeError,
        ),
        Case("array", lambda x: x + torch.from_numpy(np.flip(x.numpy()).copy()), ones, breaks="array-differs"),
        Case(
            "array and object", lambda x: np.add(x.numpy(), object()), ones, breaks="array-argument", raises=TypeError
        ),
        Case("method of arrays alone", lambda x: x + x.numpy().byteswap().size, ones, breaks="array-attribute"),
        Case(
            "numbers of numpy",
            lambda x: x + torch.tensor([np.float32(1), x.numpy().sum()]).sum(),
            ones,
            breaks="tensor-of-numpy-numbers",
        ),
        Case("collective to wait for", reduced_later, ones, breaks="collective-async"),
        Case("asked for", broken, ones, breaks="explicit-break"),
        Case("overridden", overridden, ones),
        Case("equal", lambda x: x + 1 if torch.equal(x, x) else x, ones, breaks="compares-tensors"),
    )


def test_an_attribute_that_torch_keeps_breaks_at_the_call_of_its_function() -> None:
    (event,) = armature.explain(lambda x: SetsKept.apply(x))(torch.ones(2)).breaks
    assert (event.type.id, dict(event.facts)) == ("autograd-context-attribute", {"name": "_materialize_non_diff_grads"})
    assert event.stack[-1].text.endswith("SetsKept.apply(x))(torch.ones(2)).breaks")


def test_every_break_of_the_plugin_is_triggered() -> None:
    """By a case here, by its example, which the tests of the catalogue run, or by a test that names it."""
    without_example = {row.id for row in plugin.armature_break_types() if row.shown_example is None}
    here = {case.breaks for case in TestHandlers.cases}
    folders = (Path(__file__).parent, Path(__file__).parents[3] / "tests" / "trace")
    others = {path for folder in folders for path in folder.glob("test_*.py")} - {Path(__file__)}
    text = "".join(path.read_text(encoding="utf-8") for path in others)
    named = {id for id in without_example if f'"{id}"' in text}
    assert without_example - here - named == set()


def test_compiling() -> None:
    def asks(x: Tensor) -> tuple[Tensor, bool, bool]:
        return x + 1, torch.compiler.is_compiling(), api.is_compiling()

    assert asks(torch.ones(1))[1:] == (False, False)
    assert api.compile(asks, backend="eager", fullgraph=True)(torch.ones(1))[1:] == (True, True)


def test_grad_mode_is_as_before_after_tracing() -> None:
    api.compile(nested_grad, backend="eager")(*leaf())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_results_told_for_an_lstm_are_those_of_torch(batch_first: bool, bidirectional: bool) -> None:
    module = torch.nn.LSTM(3, 4, num_layers=2, batch_first=batch_first, bidirectional=bidirectional)
    x, states = torch.randn(5, 6, 3), torch.zeros(4 if bidirectional else 2, 5 if batch_first else 6, 4)
    weights = [w for w in module._flat_weights if w is not None]
    args = (x, [states, states], weights, True, 2, 0.0, True, bidirectional, batch_first)
    for told, real in zip(recurrent.results_like(*args), torch.lstm(*args), strict=True):
        assert (told.shape, told.stride(), told.dtype, told.requires_grad, told.is_leaf) == (
            real.shape, real.stride(), real.dtype, real.requires_grad, real.is_leaf,
        )  # fmt: skip
