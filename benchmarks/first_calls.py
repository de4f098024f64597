"""`python -m benchmarks.first_calls`: seconds of the first call of training on a GPU, by stage, and torch.compile's.

All models run in one process, which first imports what all compilers need, with a small model. "rest" is what no stage
of this compiler accounts for: waiting for kernels, and the call itself. Nothing may be cached: use empty folders as
ARMATURE_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Annotated

import torch
import typer
from torch import nn

import armature
from armature.events import CompileEvent, EventKind
from armature.pipeline.session import session
from benchmarks.gpu import INCUMBENT, OURS, bound, compiled_by, first_call, load_convolutions
from benchmarks.models.case import Case
from benchmarks.models.full_size import MODELS

SLOW = "dlrm,llama,gpt2,efficientnet_b0"
WARM = "small model"


def stages_of(events: Iterable[CompileEvent]) -> dict[str, float]:
    """Seconds of each stage of one frame, without the stages inside: what is told before "graph" is part of it."""
    found: dict[str, float] = {}
    for event in events:
        if event.kind is EventKind.STAGE:
            inside = sum(found.values()) - found["trace"] if event.detail == "graph" else 0.0
            found[event.detail] = found.get(event.detail, 0.0) + event.seconds - inside
    return found


def case_of(name: str) -> Case:
    """A model of full size, or the one that everything is imported with."""
    return MODELS[name]() if name in MODELS else Case(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), (torch.ones(8, 64),))


def measure(name: str, incumbent: bool) -> None:
    """Print the seconds of a model."""
    armature.reset()
    torch.compiler.reset()
    case = case_of(name)
    model = case.model.cuda().bfloat16().train()
    args = tuple(a.cuda().bfloat16() if a.is_floating_point() else a.cuda() for a in case.args)
    load_convolutions(model, args, "train")
    seconds: dict[str, float] = {}
    for compiler in ("eager", OURS, *([INCUMBENT] if incumbent else [])):
        made = copy.deepcopy(model)
        seconds[compiler] = first_call(bound(made, compiled_by(compiler, made), args, "train"))
    stages: dict[str, float] = {}
    for record in session().compilations:
        for stage, spent in stages_of(record.events).items():
            stages[stage] = stages.get(stage, 0.0) + spent
    stages["rest"] = seconds[OURS] - sum(stages.values())
    ratio = f", {seconds[OURS] / seconds[INCUMBENT]:.2f} of {INCUMBENT}'s" if incumbent else ""
    line = ", ".join(f"{key} {value:.2f}" for key, value in (seconds | stages).items())
    print(f"{name}: {line}; {session().totals().kernels} kernels{ratio}", flush=True)


def main(
    models: Annotated[str, typer.Option(help="comma-separated")] = SLOW,
    incumbent: Annotated[bool, typer.Option(help="measure torch.compile too")] = True,
) -> None:
    """Measure first calls on a GPU."""
    for name in (WARM, *models.split(",")):
        measure(name, incumbent)


if __name__ == "__main__":
    typer.run(main)
