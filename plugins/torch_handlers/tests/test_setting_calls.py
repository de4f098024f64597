"""Calls that change how torch computes: traced, at their place in the graph, and as eager mode leaves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature_torch_handlers.contexts import generators

pytestmark = [
    pytest.mark.filterwarnings("ignore:TF32 acceleration"),
    pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered"),
]
X = torch.linspace(-1, 1, 4).reshape(2, 2)
SEEN: list[object] = []
LIBRARY = torch.library.Library("test_setting_calls", "DEF")
LIBRARY.define("look(Tensor x) -> Tensor")


def settings() -> tuple[object, ...]:
    """What is set now."""
    return (
        torch.backends.cuda.matmul.fp32_precision,
        torch.get_deterministic_debug_mode(),
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.backends.mkldnn.enabled,
        torch.is_warn_always_enabled(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.conv.fp32_precision,
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction_split_k,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_fp16_accumulation,
        torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(),
    )


@torch.library.impl(LIBRARY, "look", "CPU")
def look(x: Tensor) -> Tensor:
    """A kernel that notes what it finds when it runs."""
    SEEN.append(settings())
    return x + 1


@torch.library.register_fake("test_setting_calls::look")
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    with torch.backends.__allow_nonbracketed_mutation():  # torch's own test helpers forbid it to a process
        set_first()
        before = generators.settings_now()
        yield
        set_first()
        assert generators.settings_now() == before


def set_first() -> None:
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision = "none"
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
    torch.backends.mkldnn.enabled = True
    torch.set_warn_always(False)
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    torch.backends.cuda.matmul.allow_fp16_accumulation = False
    torch.autograd.set_detect_anomaly(False)
    torch.set_autocast_enabled("cpu", False)


def noted(x: Tensor) -> Tensor:
    return torch.ops.test_setting_calls.look(x)  # type: ignore[no-any-return]


def set_and_reset(x: Tensor) -> Tensor:
    x = noted(x * 2)
    torch.use_deterministic_algorithms(True, warn_only=True)
    x = noted(x * 2)
    torch.use_deterministic_algorithms(False)
    return noted(x) * 2


def left_set(x: Tensor) -> Any:
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(True)
    x = noted(x @ x)
    return x, torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()


def changed_again(x: Tensor) -> Tensor:
    torch.set_float32_matmul_precision("high")
    x = noted(x) * 2
    torch.set_float32_matmul_precision("medium")
    torch.set_float32_matmul_precision("medium")
    return noted(x) * 2


def by_attribute(x: Tensor) -> Any:
    torch.backends.cuda.matmul.allow_tf32 = True
    return noted(x) * (1 + torch.backends.cuda.matmul.allow_tf32), torch.get_float32_matmul_precision()


def of_attention(x: Tensor) -> Tensor:
    torch.backends.cuda.enable_flash_sdp(enabled=False)
    x = noted(x)
    return x * 2 if torch.backends.cuda.flash_sdp_enabled() else x * 3


def as_it_is(x: Tensor) -> Tensor:
    torch.set_float32_matmul_precision("highest")
    return noted(x)


def in_debug_mode(x: Tensor) -> Tensor:
    torch.set_deterministic_debug_mode("warn")
    return noted(x) * torch.get_deterministic_debug_mode()


def in_a_block(x: Tensor) -> Tensor:
    with torch.backends.mkldnn.flags(enabled=False):
        torch.use_deterministic_algorithms(True)
        x = noted(x)
    return x * 2


def of_a_module(x: Tensor) -> Any:
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    x = noted(x)
    torch.backends.cudnn.deterministic = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    return noted(x) * (2 + torch.backends.cudnn.deterministic), torch.backends.cudnn.benchmark


def of_another_module(x: Tensor) -> Tensor:
    torch.backends.mkldnn.enabled = False
    x = noted(x)
    torch.backends.mkldnn.enabled = True
    return noted(x) @ x


def of_warnings(x: Tensor) -> Any:
    torch.set_warn_always(True)
    return noted(x), torch.is_warn_always_enabled()


def of_convolutions(x: Tensor) -> Any:
    torch.backends.cudnn.allow_tf32 = False
    x = noted(x)
    torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32
    x = noted(x) * 2
    torch.backends.cudnn.allow_tf32 = False
    return x, torch.backends.cudnn.allow_tf32


def of_reductions(x: Tensor) -> Any:
    products = torch.backends.cuda.matmul
    products.allow_fp16_reduced_precision_reduction = False
    products.allow_bf16_reduced_precision_reduction = not products.allow_bf16_reduced_precision_reduction
    products.allow_fp16_accumulation = True
    x = noted(x) * (1 + products.allow_fp16_reduced_precision_reduction + products.allow_fp16_accumulation)
    products.allow_fp16_reduced_precision_reduction = (False, False)
    x = noted(x) * 2
    products.allow_fp16_reduced_precision_reduction = True
    return x, products.allow_fp16_reduced_precision_reduction_split_k


def of_anomalies(x: Tensor) -> Any:
    with torch.autograd.set_detect_anomaly(True):
        x = noted(x) * (2 + torch.is_anomaly_enabled())
    x = noted(x) * 2
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    return noted(x), torch.is_anomaly_check_nan_enabled()


def of_autocast(x: Tensor) -> Any:
    torch.set_autocast_enabled("cpu", True)
    y = noted(x @ x) * (2 + torch.is_autocast_enabled("cpu"))
    with torch.autocast("cpu", enabled=False):
        y = noted(y) + x @ x
    torch.set_autocast_enabled("cpu", False)
    z = noted(x @ x)
    torch.set_autocast_enabled("cpu", True)
    last = x @ x
    return y.float() + z + last.float(), y.dtype, z.dtype, last.dtype


PROGRAMS = [
    of_autocast,
    of_anomalies,
    of_convolutions, of_reductions,
    set_and_reset, left_set, changed_again, by_attribute, of_attention, as_it_is, in_debug_mode, in_a_block,
    of_a_module, of_another_module, of_warnings,
]  # fmt: skip


def as_tuple(result: object) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def check(program: Callable[[Tensor], Any], backend: str = "auto", fullgraph: bool = True) -> None:
    """Compare with eager mode: results, what kernels find, and what is set afterwards."""
    compiled = armature.compile(program, backend=backend, fullgraph=fullgraph)
    for before in (set_first, set_first, torch.enable_grad):
        for learns in (False, True):
            found = []
            for fn in (program, compiled, compiled):
                before()
                SEEN.clear()
                result = fn(X.clone().requires_grad_(learns))
                found.append((result, settings(), [*SEEN]))
            (expected, *states), *others = found
            for got, *those in others[1:]:  # the first call compiles, which may run kernels
                (one, *told), (other, *said) = as_tuple(got), as_tuple(expected)
                torch.testing.assert_close(one, other)
                assert told == said
                assert those == states


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_graph_does_as_eager_mode(program: Callable[[Tensor], Any], backend: str) -> None:
    check(program, backend)


def breaks_after(x: Tensor) -> Tensor:
    torch.use_deterministic_algorithms(True)
    x = noted(x)
    print(end="")
    x = noted(x) * 2
    torch.use_deterministic_algorithms(False)
    return x


def breaks_in_a_block(x: Tensor) -> Tensor:
    with torch.backends.mkldnn.flags(enabled=False):
        torch.use_deterministic_algorithms(True)
        x = noted(x)
        print(end="")
        return noted(x) * 2


def breaks_after_a_module(x: Tensor) -> Any:
    torch.backends.cudnn.benchmark = True
    x = noted(x)
    print(end="")
    x = noted(x) * (2 + torch.backends.cudnn.benchmark)
    torch.backends.cudnn.benchmark = False
    return x, torch.backends.cudnn.benchmark


def breaks_where_anomalies_are_detected(x: Tensor) -> Tensor:
    x = noted(x * 2)
    with torch.autograd.set_detect_anomaly(True):
        x = noted(x)
        print(end="")
        x = noted(x) * 2
    return noted(x)


def set_in_a_context(x: Tensor) -> Any:
    with torch.autocast("cpu", enabled=False):
        torch.set_autocast_enabled("cpu", True)
        y = noted(x @ x)
    return noted(x @ x) + y.float(), y.dtype


def raises_after(x: Tensor) -> Tensor:
    torch.set_float32_matmul_precision("high")
    try:
        return noted(x) @ x[:1, :1]
    except RuntimeError:
        return noted(x)


@pytest.mark.parametrize(
    "program",
    [
        breaks_after,
        breaks_in_a_block,
        breaks_after_a_module,
        breaks_where_anomalies_are_detected,
        set_in_a_context,
        raises_after,
    ],
)
def test_graph_breaks(program: Callable[[Tensor], Any]) -> None:
    check(program, fullgraph=False)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("program", [of_autocast, set_in_a_context])
def test_autocast_is_left_as_in_eager_mode(program: Callable[[Tensor], Any], backend: str) -> None:
    compiled, left = armature.compile(program, backend=backend), []
    for before in (False, True, False):
        for fn in (program, compiled, compiled):
            torch.set_autocast_enabled("cpu", before)
            fn(X)
            left.append((before, torch.is_autocast_enabled("cpu")))
    assert left[1::3] == left[2::3] == left[::3]


def test_anomalies_of_a_step_are_detected() -> None:
    def step(x: Tensor) -> None:
        with torch.autograd.set_detect_anomaly(True):
            (x.detach().requires_grad_() * 0).sqrt().sum().backward()

    for fn in (step, armature.compile(step)):
        with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="returned nan values"):
            fn(X)
        assert not torch.is_anomaly_enabled()


def test_a_setting_stays_where_the_graph_ends() -> None:
    assert armature.explain(breaks_after)(X).graph_break_count == 1


def mixed(x: Tensor) -> Tensor:
    torch.use_deterministic_algorithms(True)
    torch.set_deterministic_debug_mode("default")
    return x * 2


def unknown(x: Tensor) -> Tensor:
    torch.set_float32_matmul_precision("quick")  # torch warns
    return x * 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [mixed, unknown])
def test_what_is_left_to_eager_mode(program: Callable[[Tensor], Tensor]) -> None:
    check(program, fullgraph=False)
    assert armature.explain(program)(X).breaks[0].type.id == "global-state"


WRONG: dict[str, Callable[[], None]] = {
    "must be bool": lambda: torch.use_deterministic_algorithms(1),  # type: ignore[arg-type]
    "invalid value of debug_mode": lambda: torch.set_deterministic_debug_mode(7),
    "missing 1 required": lambda: torch.set_float32_matmul_precision(),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_values_raise_as_in_eager_mode(message: str) -> None:
    def wrong(x: Tensor) -> Tensor:
        WRONG[message]()
        return x * 2

    for fn in (wrong, armature.compile(wrong)):
        with pytest.raises((RuntimeError, TypeError), match=message):
            fn(X)


def test_an_error_of_the_graph_leaves_what_the_program_has_set() -> None:
    def fails(x: Tensor, at: Tensor) -> Tensor:
        torch.set_float32_matmul_precision("high")
        return (x * 2)[at]

    compiled = armature.compile(fails)
    compiled(X, torch.tensor([0]))
    for fn in (fails, compiled):
        set_first()
        with pytest.raises(IndexError):
            fn(X, torch.tensor([9]))
        assert torch.get_float32_matmul_precision() == "high"


def test_code_is_compiled_anew_for_each_precision() -> None:
    def asks(x: Tensor) -> Tensor:
        return x * len(torch.get_float32_matmul_precision())

    compiled = armature.compile(asks)
    for precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)
        assert torch.equal(compiled(X), asks(X))
