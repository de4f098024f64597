"""Kernels with strides that change from call to call, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import armature
from armature.pipeline.session import session
from tests.support.strides import FUNCTIONS, PARTS, WIDTHS, arithmetic, check, check_gradients, trained, written

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_two_graphs_for_all_widths(fn: Callable[..., Any]) -> None:
    quick = armature.compile(fn, fullgraph=True)
    for width in WIDTHS:
        check(quick, fn, PARTS["columns"], width)
    assert len(session().compilations) == 2


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("fn", [arithmetic, written])
def test_each_kind_of_part(part: str, fn: Callable[..., Any]) -> None:
    quick = armature.compile(fn, fullgraph=True)
    for width in WIDTHS:
        check(quick, fn, PARTS[part], width)
    assert len(session().compilations) == 2
    assert all(source.backend == "gpu_triton" for source in session().kernel_sources())


@pytest.mark.parametrize("part", ["columns", "transposed", "both"])
def test_gradients(part: str) -> None:
    quick = armature.compile(trained, fullgraph=True)
    for width in WIDTHS:
        check_gradients(quick, trained, PARTS[part], width)
    assert len(session().compilations) == 2
