"""`torch.sparse.check_sparse_tensor_invariants`: whether torch checks the indices of sparse tensors made inside."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.sparse import check_sparse_tensor_invariants

from armature.plugin_api import Call, Value, handles
from armature_torch_handlers.contexts.generators import context_value, leave_entered


def enter_checks(enable: bool) -> AbstractContextManager[object]:
    """Switch the checks on or off; returns the entered context manager."""
    entered: AbstractContextManager[object] = check_sparse_tensor_invariants(enable)
    entered.__enter__()
    return entered


@handles(check_sparse_tensor_invariants)
def checks(call: Call, enable: Value | None = None) -> Value | None:
    """The context manager."""
    if enable is not None and enable.python_type() is not bool:
        return None
    return context_value(enter_checks, (enable is None or enable.as_constant(),), leave_entered)
