"""Functions of nested tensors that torch can't run on fake tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from armature.plugin_api import Call, TracedTensor, Value, handles, nested_attention


@handles(F.scaled_dot_product_attention)
def attention(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Attention, as a node of the graph."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, TracedTensor)]
    if not any(value.fake.layout is torch.jagged for value in given):
        return None
    return call.graph_call_as(nested_attention, F.scaled_dot_product_attention, *args, **kwargs)
