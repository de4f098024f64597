"""`local_response_norm`, which torch writes in Python: with numbers that vary it is traced into."""

from __future__ import annotations

from torch.nn import functional as F

from armature.plugin_api import Call, Value, VaryingNumber, handles


@handles(F.local_response_norm)
def local_response_norm(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Its operators take numbers that vary; as one call of the graph it would be compiled for each."""
    varies = any(isinstance(value, VaryingNumber) for value in (*args, *kwargs.values()))
    return call.polyfill(call.fn, *args, **kwargs) if varies else None
