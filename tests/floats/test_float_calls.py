"""Every function and method of torch with an argument that may be a float, with six values of it: a graph for each of
the first two, and one for all others. Values, gradients and numbers of graphs are compared with eager mode's."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session
from tests.floats.float_calls import FloatCall, calls, leaves

PARTS = 8
MOST = 3  # compilations
TOLERANCE = 1e-5
# Arguments with a graph for each value, by reason; those of torch.compile's have one too unless the reason says so.
# An argument that a schema calls a float needs no entry: torch itself refuses numbers there that are not known.
SCHEMA = "it gives the number to operators whose schemas say float"
ELSE = {
    r"torch\.nn\.functional\.(alpha_|feature_alpha_)?dropout\d?d?:p": SCHEMA,
    r"torch\.nn\.functional\.(linear_)?cross_entropy:label_smoothing": SCHEMA,
    r"torch\.nn\.functional\.(group|instance)_norm:(eps|momentum)": SCHEMA,
    r"torch\.nn\.functional\.\w+_loss:(margin|delta|eps|beta|p)": SCHEMA,
    r"torch\.(nn\.functional\.)?rrelu(_?\(\))?:(lower|upper)": SCHEMA,
    r"torch\.(nn\.functional\.)?rrelu_\(\):(lower|upper)": SCHEMA,
    r"torch\.range\(.*": "the size of the result depends on it",
    r"torch\.arange\(start.*": "the size of the result depends on it; torch.compile has two or three",
    r"torch\.(cumulative_)?trapezoid\(dx\):dx": "its kernel multiplies by the known number",
    r"torch\.(Tensor\.)?float_power\(.*": "which dtype the result has is found out with the number",
    r"torch\.(Tensor\.)?(std|var)(_mean)?\(correction\):correction": "its kernel takes a known number",
    r"torch\.cdist:p": "torch chooses a kernel by it",
}
OLD = torch.__version__.startswith("2.11.")
ASKED = re.compile(r"torch\.(Tensor\.)?(nan)?quantile\(scalar\):q")  # torch 2.11 asks for the value
if OLD:
    ELSE[r"torch\.(Tensor\.)?(std|var)(_mean)?\(correction_names\):correction"] = "so does this one in torch 2.11"
NOT_SEEN = re.compile(r"torch\.nn\.functional\.(multi_margin|triplet_margin_with_distance)_loss:\w+")
KNOWN = frozenset({"float", "Optional[float]"})
RANDOM = re.compile(r"dropout|rrelu|gumbel|bernoulli|normal|uniform|exponential|geometric|cauchy")


def reason(call: FloatCall) -> str | None:
    """Why it is right that a call has a graph for each value; None: it has no such reason."""
    if call.kind in KNOWN:
        return "torch refuses numbers that are not known"
    if NOT_SEEN.fullmatch(call.label):
        return None
    return next((why for pattern, why in ELSE.items() if re.fullmatch(pattern, call.label)), None)


@functools.cache
def every() -> list[FloatCall]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [call for call in calls() if isinstance(call, FloatCall)]
    return [call for call in found if not (OLD and ASKED.fullmatch(call.label))]


def program(call: FloatCall) -> Callable[..., Any]:
    space: dict[str, Any] = {"fn": call.fn, "torch": torch}
    exec(f"def program({', '.join([*call.tensors, 'value'])}):\n    return {call.text}\n", space)
    return space["program"]  # type: ignore[no-any-return]


def seen(fn: Callable[..., Any], call: FloatCall, value: float, trains: bool) -> list[Any]:
    """The results, and the gradients of the tensors."""
    torch.manual_seed(0)
    given = [one.clone().requires_grad_(trains and one.is_floating_point()) for one in call.tensors.values()]
    results = leaves(fn(*given, value))
    outputs = [one for one in results if isinstance(one, Tensor) and one.requires_grad]
    if not outputs:
        return results
    torch.manual_seed(1)
    learning = [one for one in given if one.requires_grad]
    found = torch.autograd.grad(outputs, learning, [torch.rand_like(one) for one in outputs], allow_unused=True)
    return [*results, *found]


def has_derivative(fn: Callable[..., Any], call: FloatCall) -> bool:
    try:
        seen(fn, call, call.values[0], trains=True)
    except (RuntimeError, NotImplementedError):
        return False
    return True


def check(call: FloatCall, backend: str, trains: bool) -> None:
    """As eager for all values, with no more compilations than there may be, each of them with its graphs compiled."""
    fn = program(call)
    trains = trains and has_derivative(fn, call)
    armature.reset()
    quick = armature.compile(fn, backend=backend, options={"recompile_limit": 32})
    for value in call.values:
        expected, found = seen(fn, call, value, trains), seen(quick, call, value, trains)
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(
                other, one, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True, msg=f"{call} {value}"
            )
    records, why = session().compilations, reason(call)
    assert not [event.type.id for record in records for event in record.breaks], call
    assert (len(records) <= MOST) is (why is None) or call.kind in KNOWN, f"{call}: {len(records)} compilations; {why}"
    if backend == "auto" and why is None:
        assert all(record.graphs for record in records if record.module is not None), f"{call}: operator by operator"


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_floats_that_vary(part: int) -> None:
    for call in every()[part::PARTS]:
        check(call, "eager", trains=False)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_floats_that_vary_in_kernels_and_gradients(part: int) -> None:
    for call in every()[part::PARTS]:
        if not RANDOM.search(call.label):  # kernels draw other numbers
            check(call, "auto", trains=True)


def test_the_sweep_reaches_what_it_should() -> None:
    labels = {call.label for call in every()}
    assert len(labels) > 380
    assert {"torch.addmm():beta", "torch.Tensor.clamp():max", "torch.nn.functional.hardtanh:min_val"} <= labels
    assert {"torch.renorm():maxnorm", "torch.special.zeta(self_scalar):input", "torch.linspace():end"} <= labels


def test_no_reason_is_of_no_use() -> None:
    labels = [call.label for call in every()]
    assert [pattern for pattern in ELSE if not any(re.fullmatch(pattern, label) for label in labels)] == []
