"""Every model of the benchmarks' zoo in one graph, with the loss of eager mode."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import armature
from armature.graph import pieces
from armature.pipeline.session import session
from benchmarks.models import ZOO


@pytest.fixture
def no_warnings_written() -> Iterator[None]:
    """As in the benchmark: a warning that a model writes ends its graph."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.usefixtures("no_warnings_written")
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", ZOO)
def test_in_one_graph(name: str, mode: str) -> None:
    torch.manual_seed(0)
    case = ZOO[name]()
    case.model.train(mode == "train")
    losses, graphs = [], []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    armature.reset()
    for model in (case.model, armature.compile(case.model, backend=backend, fullgraph=True)):
        torch.manual_seed(1)
        with torch.set_grad_enabled(mode == "train"):
            losses.append(case.loss(model(*case.args, **case.kwargs)))
    torch.testing.assert_close(losses[1], losses[0])
    # One that makes a tensor a leaf is given to the back end in pieces: what is before it, and what is after it.
    (record,) = session().compilations
    assert record.module is not None
    assert len(graphs) == 1 + sum(pieces.runs_between_pieces(node) for node in record.module.graph.nodes)
