"""Grad mode: `no_grad`, `enable_grad` and `set_grad_enabled` end in one primitive; inference mode is not captured."""

from __future__ import annotations

from armature.plugin_api import Call, Value, existing, handles


@handles(*existing("torch._C._set_grad_enabled"))
def set_grad_enabled(call: Call, mode: Value) -> Value | None:
    """A node even though its argument is constant: folded, it would be lost."""
    if not mode.is_constant:
        return None
    call.graph_call(call.fn, mode)
    return call.constant(None)


@handles(
    *existing(
        "torch._C._InferenceMode",
        "torch.autograd.grad_mode._enter_inference_mode",
        "torch.autograd.grad_mode._exit_inference_mode",
    )
)
def inference_mode(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Tensors made in inference mode are of another kind, which a graph cannot give back."""
    call.graph_break("inference-mode", operation="torch.inference_mode")
