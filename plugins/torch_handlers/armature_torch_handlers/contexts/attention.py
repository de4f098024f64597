"""`torch.nn.attention.sdpa_kernel`: the kernels that scaled_dot_product_attention may choose, set while tracing."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.nn.attention import SDPBackend, sdpa_kernel

from armature.plugin_api import Call, PairedContextValue, Value, handles

BACKENDS: dict[int, SDPBackend] = {int(backend.value): backend for backend in SDPBackend.__members__.values()}


def enter_sdpa_kernel(backends: tuple[int, ...], set_priority: bool) -> AbstractContextManager[object]:
    """Allow only these backends; returns the entered context manager. In the graph, backends are numbers."""
    entered: AbstractContextManager[object] = sdpa_kernel([BACKENDS[number] for number in backends], set_priority)
    entered.__enter__()
    return entered


def exit_sdpa_kernel(entered: AbstractContextManager[object]) -> None:
    """Restore the backends allowed before."""
    entered.__exit__(None, None, None)


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
    return PairedContextValue(type(sdpa_kernel), enter_sdpa_kernel, (numbers, ranked), exit_sdpa_kernel)
