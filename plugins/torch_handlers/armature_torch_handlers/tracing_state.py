"""Queries about torch's state: is something tracing, is grad mode on, which dtype is the default.

They are answered while tracing. What can change between calls (grad mode, autocast, default dtype, determinism) is
covered by the guard on torch's global state that each compiled frame has.
"""

from __future__ import annotations

import torch

from armature.plugin_api import Call, Value, existing, handles


@handles(
    *existing(
        "torch._C._get_tracing_state",
        "torch._C._is_tracing",
        "torch._jit_internal.is_scripting",
        "torch.fx._symbolic_trace.is_fx_symbolic_tracing",
        "torch.fx._symbolic_trace.is_fx_tracing",
        "torch.jit._trace.is_tracing",
        "torch.nn.modules.activation._is_make_fx_tracing",
        "torch.compiler.is_exporting",
        "torch.onnx.is_in_onnx_export",
    )
)
def not_traced_by_others(call: Call) -> Value:
    """False, as in eager mode: no other tracer is active."""
    return call.constant(None if call.fn.__name__ == "_get_tracing_state" else False)


@handles(*existing("torch.jit.annotate"))
def annotated(call: Call, the_type: Value, the_value: Value) -> Value:
    """The value itself: the type only matters to TorchScript."""
    return the_value


@handles(*existing("torch.compiler.is_compiling", "torch.compiler.is_dynamo_compiling", "torch._utils.is_compiling"))
def compiling(call: Call) -> Value:
    """True: a program that asks wants to know that it is being compiled, by whatever compiler."""
    return call.constant(True)


@handles(*existing("torch._utils._get_available_device_type"))
def available_device_type(call: Call) -> Value:
    """The accelerator of this machine, which does not change while the process runs."""
    return call.constant(call.fn())


@handles(
    *existing("torch.get_autocast_dtype", "torch.get_autocast_gpu_dtype", "torch.get_autocast_cpu_dtype"),
)
def autocast_dtype(call: Call, device: Value | None = None) -> Value | None:
    """The autocast dtype; torch's global state only includes it while autocast is on."""
    if device is not None and not device.is_constant:
        return None
    older = {"get_autocast_gpu_dtype": "cuda", "get_autocast_cpu_dtype": "cpu"}
    asked = older.get(call.fn.__name__) if device is None else device.as_constant()
    if not isinstance(asked, str):
        return None
    try:
        found = torch.get_autocast_dtype(asked)
    except (RuntimeError, ValueError) as error:
        call.tracing.raise_real(error)
    call.tracing.guards.autocast_dtype(asked)
    return call.constant(found)


@handles(
    *existing(
        "torch.is_grad_enabled",
        "torch.is_inference_mode_enabled",
        "torch.is_autocast_enabled",
        "torch.is_autocast_cpu_enabled",
        "torch.is_autocast_cache_enabled",
        "torch._C._is_any_autocast_enabled",
        "torch._C._is_autocast_available",
        "torch.get_default_dtype",
        "torch.are_deterministic_algorithms_enabled",
        "torch.get_deterministic_debug_mode",
        "torch.is_deterministic_algorithms_warn_only_enabled",
        "torch._C._get_deterministic_algorithms",
        "torch._C._get_deterministic_algorithms_warn_only",
        "torch.get_num_threads",
        "torch.get_num_interop_threads",
        "torch._use_cudnn_rnn_flatten_weight",
        "torch._C._is_fwd_grad_enabled",
        "torch._C._is_multithreading_enabled",
    )
)
def setting(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Call torch now: while tracing, torch's own state is that of the traced program at this point."""
    if not all(value.is_constant for value in (*args, *kwargs.values())):
        return None
    plain = [value.as_constant() for value in args]
    named = {name: value.as_constant() for name, value in kwargs.items()}
    return call.constant(call.fn(*plain, **named))
