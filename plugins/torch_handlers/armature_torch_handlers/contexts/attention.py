"""`torch.nn.attention.sdpa_kernel`: the kernels that scaled_dot_product_attention may choose, set while tracing; and
`torch.backends.cuda.sdp_kernel`, which names them one by one."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.nn.attention import SDPBackend, sdpa_kernel

from armature.plugin_api import Call, Value, existing, handles
from armature_torch_handlers.contexts.generators import context_value, leave_entered

BACKENDS: dict[int, SDPBackend] = {int(backend.value): backend for backend in SDPBackend.__members__.values()}
NAMED = {
    "enable_flash": SDPBackend.FLASH_ATTENTION,
    "enable_math": SDPBackend.MATH,
    "enable_mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "enable_cudnn": SDPBackend.CUDNN_ATTENTION,
}


def enter_sdpa_kernel(backends: tuple[int, ...], set_priority: bool) -> AbstractContextManager[object]:
    """Allow only these backends; returns the entered context manager. In the graph, backends are numbers."""
    entered: AbstractContextManager[object] = sdpa_kernel([BACKENDS[number] for number in backends], set_priority)
    entered.__enter__()
    return entered


@handles(sdpa_kernel)
def choose_kernels(call: Call, backends: Value, set_priority: Value | None = None) -> Value | None:
    """The context manager, for backends known while tracing."""
    if issubclass(backends.python_type(), SDPBackend):
        items = [backends]
    else:
        items = list(call.tracing.unpack(backends))
    if not all(issubclass(item.python_type(), SDPBackend) for item in items):
        return None
    if set_priority is not None and not set_priority.is_constant:
        return None
    numbers = tuple([int(item.as_object()) for item in items])
    ranked = set_priority is not None and bool(set_priority.as_constant())
    return context_value(enter_sdpa_kernel, (numbers, ranked), leave_entered)


@handles(*existing("torch.backends.cuda.sdp_kernel"))
def choose_named_kernels(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """The older spelling. Making it warns, which happens once, here."""
    given = dict(zip(NAMED, args)) | kwargs
    if len(args) > len(NAMED) or not given.keys() <= NAMED.keys():
        return None
    if not all(value.is_constant for value in given.values()):
        return None
    call.fn()
    chosen = [kernel for name, kernel in NAMED.items() if name not in given or given[name].as_constant()]
    return context_value(enter_sdpa_kernel, (tuple([int(kernel.value) for kernel in chosen]), False), leave_entered)
