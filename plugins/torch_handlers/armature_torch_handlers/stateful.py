"""Functions that change state of the process. If they ran while tracing, the change would be too early and happen only
once."""

from __future__ import annotations

import torch

from armature.plugin_api import Call, TracedTensor, Value, call_uncompiled, existing, handles

SETTERS = (
    "torch._C._push_on_torch_dispatch_stack",
    "torch._C._pop_torch_dispatch_stack",
    "torch._C._len_torch_dispatch_stack",  # tracing itself pushes modes on this stack
    "torch._C._get_dispatch_stack_at",
    "torch._C._get_dispatch_mode",
    "torch._C._set_dispatch_mode",
    "torch._C._unset_dispatch_mode",
    "torch.set_default_tensor_type",
    "torch.set_num_threads",
    "torch.set_num_interop_threads",
    "torch.set_flush_denormal",
    "torch._C._set_deterministic_algorithms",
    "torch._C._set_default_tensor_type",
    "torch._C._set_warnAlways",
    "torch._C._set_math_sdp_enabled",
    "torch._C._set_sdp_use_math",
    "torch._C._set_sdp_use_flash",
    "torch._C._set_sdp_use_mem_efficient",
    "torch._C._set_sdp_use_cudnn",
    "torch.seed",
    "torch.initial_seed",
    "torch.random.seed",
    "torch.random.initial_seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "torch.cuda.set_device",
    "torch.cuda.synchronize",
    "torch.cuda.memory.memory_allocated",
    "torch.cuda.memory.memory_reserved",
    "torch.cuda.memory.max_memory_allocated",
    "torch.cuda.memory.memory_stats",
    "torch.cuda.memory.reset_peak_memory_stats",
    "torch.cpu.synchronize",
    "torch.accelerator.synchronize",
    "torch.mps.synchronize",
    "torch.xpu.synchronize",
    "torch.futures.wait_all",
    "torch.futures.collect_all",
    "torch._C._crash_if_csrc_asan",
)
STATE_SIZE = torch.get_rng_state().numel()


@handles(*existing("torch._C._log_api_usage_once"))
def logged_once(call: Call, event: Value) -> Value | None:
    """Log to torch's log now: it records the first call of an event and ignores all others."""
    if not event.is_constant:
        return None
    call.fn(event.as_constant())
    return call.constant(None)


@handles(*existing("torch.set_default_dtype", "torch._C._set_default_dtype"))
def set_default_dtype(call: Call, d: Value) -> Value | None:
    """The new default applies to everything traced from here on, and is set when the frame ends."""
    if not d.is_constant:
        return None
    try:
        call.tracing.effects.switch_default_dtype(d.as_constant())
    except TypeError as error:
        call.tracing.raise_real(error)
    return call.constant(None)


def start_draws(seed: int) -> None:
    """Seed torch's generators, unless the graph is only run to learn what it returns, on fake tensors."""
    if type(torch.empty(0)) is torch.Tensor:
        torch.manual_seed(seed)


@handles(*dict.fromkeys(existing("torch.manual_seed", "torch.random.manual_seed")))
def manual_seed(call: Call, seed: Value) -> Value:
    """Seed torch's generators at this place of the graph, between compiled pieces. The graphs of branches and loops
    have no such places."""
    if seed.python_type() is not int or call.tracing.recorder.subgraph_depth:
        call.graph_break("global-state", function="torch.random.manual_seed")
    call_uncompiled(call.tracing, start_draws, "manual_seed", (seed,))
    return call.tracing.as_value(torch.default_generator)


def read_draws(state: torch.Tensor) -> None:
    """Write the state of torch's generator for the CPU to a tensor."""
    if type(state) is torch.Tensor:
        state.copy_(torch.get_rng_state())


def go_back_to(state: torch.Tensor) -> None:
    """Set the state of torch's generator for the CPU."""
    if type(state) is torch.Tensor:
        torch.set_rng_state(state)


# Counted as torch's, so that a graph that raises can run again, which does the same. A graph as text has the first by
# its name in torch, which has no functions like the others.
start_draws.__module__ = torch.manual_seed.__module__
read_draws.__module__ = go_back_to.__module__ = "torch_generators"


@handles(*dict.fromkeys(existing("torch.get_rng_state", "torch.random.get_rng_state")))
def get_rng_state(call: Call) -> Value:
    """The state at this place of the graph, as for `manual_seed`."""
    if call.tracing.recorder.subgraph_depth:
        call.graph_break("global-state", function="torch.random.get_rng_state")
    options = {"dtype": call.constant(torch.uint8), "device": call.constant(torch.device("cpu"))}
    state = call.graph_call(torch.empty, call.constant((STATE_SIZE,)), **options)
    call_uncompiled(call.tracing, read_draws, "get_rng_state", (state,))
    return state


@handles(*dict.fromkeys(existing("torch.set_rng_state", "torch.random.set_rng_state")))
def set_rng_state(call: Call, new_state: Value) -> Value:
    """Set the state at this place of the graph."""
    tensor = new_state if isinstance(new_state, TracedTensor) else None
    form = None if tensor is None else (tensor.dtype, tensor.device.type, tuple(tensor.fake.shape))
    if form != (torch.uint8, "cpu", (STATE_SIZE,)) or call.tracing.recorder.subgraph_depth:
        call.graph_break("global-state", function="torch.random.set_rng_state")
    return call_uncompiled(call.tracing, go_back_to, "set_rng_state", (new_state,), frozenset({0}))


@handles(*dict.fromkeys(existing("torch.cuda.empty_cache", "torch.cuda.memory.empty_cache")))
def empty_cache(call: Call) -> Value:
    """Code written for GPUs calls it on a CPU as well, where it does nothing."""
    if torch.cuda.is_available():
        call.graph_break("global-state", function="torch.cuda.memory.empty_cache")
    return call.constant(None)


@handles(*dict.fromkeys(existing(*SETTERS)))
def changes_state(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Break the graph, so that the change happens at the right time."""
    call.graph_break("global-state", function=f"{call.fn.__module__ or 'torch'}.{call.fn.__name__}")
