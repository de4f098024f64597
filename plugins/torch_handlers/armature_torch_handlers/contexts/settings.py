"""Settings of torch.compile that a program changes around a call: they say nothing to us.

The modules of exported programs check their inputs in such a context.
"""

from __future__ import annotations

from typing import Any

from armature.plugin_api import NullContextValue, Value, ValueType

MODULE, NAME = "torch._dynamo.decorators", "DynamoConfigPatchProxy"  # not loaded before it is used


def changes_settings(obj: object) -> bool:
    """Whether entering the object does nothing but change settings of torch.compile."""
    return type(obj).__module__ == MODULE and type(obj).__name__ == NAME


def held(obj: Any, source: Any, tracer: Any) -> Value:
    """The value of such a context that was made before the function was called."""
    return NullContextValue(type(obj), source=source)


VALUE_TYPES = (ValueType(changes_settings, held),)
