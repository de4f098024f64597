"""`multilabel_margin_loss` with fewer labels than classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import armature

LABELS = ([[0, 2, -1, 1], [1, -1, 0, 0]], [[-1, 2, 1, 1], [1, 2, 3, 0]], [[3, 3, -1, -1], [0, 1, -1, 2]])
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"reduce": False},
    {"size_average": False},
)


@pytest.mark.filterwarnings("ignore:size_average and reduce args")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_as_in_eager_mode(labels: list[list[int]], options: dict[str, Any]) -> None:
    target = torch.tensor(labels)
    scores = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    run = armature.compile(lambda x, t: F.multilabel_margin_loss(x, t, **options), fullgraph=True)
    for part in (slice(None), 0):  # also without a batch
        x, y = scores[part].clone().requires_grad_(), scores[part].clone().requires_grad_()
        expected = F.multilabel_margin_loss(x, target[part], **options)
        expected.sum().backward()
        found = run(y, target[part])
        found.sum().backward()
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(y.grad, x.grad)
