"""`multilabel_margin_loss`: torch's decomposition, which it applies above autograd, also counts labels after the first
-1, as if they were label 0."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, fx
from torch.nn import functional

SIGNATURE = inspect.signature(functional.multilabel_margin_loss)


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    """The margins by which other classes miss those of each row's labels: the ones before its first -1."""
    shape = x.shape
    x, target = x.reshape(-1, shape[-1] if shape else 1), target.reshape(-1, shape[-1] if shape else 1)
    listed = (target == -1).cumsum(-1) == 0
    scores = x.gather(-1, torch.where(listed, target, 0))
    classes = torch.arange(x.shape[-1], device=x.device)
    wanted = (classes == torch.where(listed, target, -1).unsqueeze(-1)).any(-2)
    margins = torch.relu(1 - scores.unsqueeze(-1) + x.unsqueeze(-2))
    counted = listed.unsqueeze(-1) & ~wanted.unsqueeze(-2)
    losses = torch.where(counted, margins, 0).sum((-1, -2)) / x.shape[-1]
    if reduction == "none":
        return losses if len(shape) > 1 else losses.reshape(())
    return losses.sum() if reduction == "sum" else losses.mean()


def mend_margins(module: object, ctx: object) -> object:
    """Pass over the captured graph: redirects calls of torch's function to the one above."""
    if isinstance(module, fx.GraphModule):
        for node in module.graph.find_nodes(op="call_function", target=functional.multilabel_margin_loss):
            call = SIGNATURE.bind(*node.args, **node.kwargs)
            call.apply_defaults()
            x, target, averaged, reduced, reduction = call.arguments.values()
            if averaged is not None or reduced is not None:  # the older arguments win
                reduction = "none" if reduced is False else "sum" if averaged is False else "mean"
            node.target, node.args, node.kwargs = multilabel_margin_loss, (x, target, reduction), {}
        module.recompile()
    return module
