"""`torch.__version__`: a text with comparisons of its own, all of which are known while tracing."""

from __future__ import annotations

from torch.torch_version import TorchVersion

from armature.plugin_api import ConstantValue, Source, Tracing, Value, ValueType


def of_program(obj: object, source: Source, tracer: Tracing) -> Value:
    """A version of the program, guarded by identity: equal versions may be different texts."""
    tracer.guards.same(source, obj)
    return ConstantValue(obj, source=source)


VALUE_TYPES = (ValueType(TorchVersion, of_program, constant=True),)
