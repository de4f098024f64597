"""Models as people run them: each look at a frame has an outcome with a reason, each break a cause that the line shows.

Nothing is silenced: the warnings that models write in their first call, and the hooks that they set up, are breaks.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import armature
from armature.breaks.types import HintKind
from armature.reports.record import Break, Outcome, Recording
from armature.reports.recorder import Recorder

pytest.importorskip("transformers", reason="most of the models are its")
from benchmarks.models import ZOO
from benchmarks.zoo.libraries import LIBRARIES

# Of the larger collection, so that there are kinds of models that the small one lacks.
MORE = (
    "albert:AlbertModel",
    "codegen:CodeGenModel",
    "convbert:ConvBertModel",
    "deberta-v2:DebertaV2Model",
    "fnet:FNetModel",
    "funnel:FunnelBaseModel",
    "gpt_neo:GPTNeoModel",
    "mpnet:MPNetModel",
    "nystromformer:NystromformerModel",
    "olmo:OlmoModel",
    "phi3:Phi3Model",
    "poolformer:PoolFormerModel",
    "roformer:RoFormerModel",
    "squeezebert:SqueezeBertModel",
    "xglm:XGLMModel",
)
# What a reader of the code finds: words of the line that breaks first, and of the cause that is to be told.
CAUSES: dict[str, tuple[str, str]] = {
    "gpt2": ("logger.warning", "sys._getframe"),  # the frame that writes a warning is looked for
    "segformer": ("with _hook_installation_lock", "lock"),
}
OWN_WORDS = ("tracer", "proxy", "FakeTensor", "VariableTracker", "dynamo")


def small(name: str) -> Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """A model of the small collection with the arguments of a call."""

    def build() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        case = ZOO[name]()
        return case.model.eval(), case.args, dict(case.kwargs)

    return build


def of_library(name: str) -> Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """A model of the larger collection, built in the first way in which it runs."""

    def build() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        errors = []
        for way in LIBRARIES["transformers"].ways(name):
            try:
                case = way()
                args, kwargs = case.arguments("infer")
                case.model.eval()(*args, **kwargs)
                return case.model, args, kwargs
            except Exception as error:  # the next way is another size
                errors.append(error)
        raise AssertionError(f"{name} can't be built: {errors}")

    return build


MODELS = {**{name: small(name) for name in ZOO}, **{name: of_library(name) for name in MORE}}


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def recording_of(name: str) -> Recording:
    model, args, kwargs = MODELS[name]()
    with Recorder(name) as recorder:
        armature.compile(model, backend="eager")(*args, **kwargs)
    return recorder.recording()


def test_there_are_forty() -> None:
    of_libraries = [name for name in MODELS if not name.startswith("example:")]
    assert len(of_libraries) >= 40 and MODELS.keys() >= CAUSES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_each_event_has_a_reason(name: str) -> None:
    recording = recording_of(name)
    assert recording.frames and not recording.problems
    for frame in recording.frames:
        assert frame.reason.strip() and frame.callers
        assert not [word for word in OWN_WORDS if word in frame.reason]
        assert bool(frame.breaks) == (frame.outcome is Outcome.BROKEN)
        assert frame.outcome is not Outcome.FELL_BACK, frame.reason
        assert all(failure.text for failure in frame.failures)
    for one in recording.breaks:
        check(one)
    assert recording.count(Outcome.COMPILED, Outcome.BROKEN, Outcome.RECOMPILED)
    assert_cause(name, recording)


def check(one: Break) -> None:
    """A break stands at a line of the program, with the expression, a cause and hints without gaps."""
    assert one.place is not None and one.place.own
    assert linecache.getline(one.place.file, one.place.line).strip() == one.place.text
    assert one.place.text[one.place.column : one.place.end_column].strip()
    texts = (one.title, one.explanation, one.cause, *one.hints)
    assert all(texts) and len(one.hints) >= 2 and "<" not in "".join(one.hints)
    assert {kind for _, kind in one.advice} <= {kind.value for kind in HintKind}
    assert one.count >= 1 and set(one.frames)


def assert_cause(name: str, recording: Recording) -> None:
    """The first break is the one that a reader finds; a model that is not listed has none."""
    if name not in CAUSES:
        assert [(one.type, one.place and one.place.where) for one in recording.breaks] == []
        return
    line, cause = CAUSES[name]
    first = recording.breaks[0]
    assert any(line in place.text for place in first.stack), [place.text for place in first.stack]
    assert cause in first.explanation
