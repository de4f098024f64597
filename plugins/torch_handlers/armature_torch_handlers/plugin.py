"""The plugin's hook implementations, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from armature.plugin_api import (
    BreakType,
    FrameView,
    Handler,
    Pass,
    Polyfill,
    Tracing,
    ValueType,
    collect,
    hookimpl,
)
from armature_torch_handlers import (
    after_breaks,
    altering,
    arrays,
    breaks,
    casts_inside,
    checks,
    collectives,
    correlations,
    creation,
    data_parallel,
    distributions,
    draw_bounds,
    dtensors,
    factors,
    fills,
    flags,
    graph_backends,
    interpolation,
    items,
    known_numbers,
    limits,
    math_of_tensors,
    module_values,
    modules,
    nested,
    norms,
    number_tensors,
    numpy_draws,
    numpy_numbers,
    optim,
    own,
    queries,
    recurrent,
    sampling,
    scripted,
    spectra,
    stateful,
    storages,
    tensor_attributes,
    tensor_methods,
    tracing_state,
    versions,
)
from armature_torch_handlers.contexts import (
    array_errors,
    attention,
    autocast,
    backend_flags,
    default_device,
    devices,
    forward_ad,
    generators,
    grad,
    overrides,
    profiler,
    saved_tensors,
    setting_calls,
    settings,
    sparse_checks,
)
from armature_torch_handlers.programs import (
    autograd_function,
    backward,
    checkpoint,
    control_flow,
    flexible,
    function_context,
    hooks,
    loops,
    opaque_functions,
    scans,
    transforms,
)

FAMILIES = (
    own,
    altering,
    grad,
    autocast,
    attention,
    backend_flags,
    default_device,
    devices,
    sparse_checks,
    generators,
    profiler,
    array_errors,
    forward_ad,
    saved_tensors,
    setting_calls,
    overrides,
    autograd_function,
    function_context,
    backward,
    checkpoint,
    control_flow,
    flexible,
    hooks,
    loops,
    scans,
    opaque_functions,
    transforms,
    tracing_state,
    queries,
    casts_inside,
    checks,
    collectives,
    creation,
    dtensors,
    nested,
    arrays,
    items,
    number_tensors,
    numpy_numbers,
    numpy_draws,
    flags,
    known_numbers,
    math_of_tensors,
    draw_bounds,
    limits,
    stateful,
    storages,
    sampling,
    correlations,
    fills,
    interpolation,
    distributions,
    norms,
    spectra,
    recurrent,
    optim,
    factors,
    modules,
    tensor_attributes,
    tensor_methods,
)


@hookimpl
def armature_handlers() -> Iterable[Handler]:
    """The handlers of all families."""
    return collect(*FAMILIES)


@hookimpl
def armature_extend_break(frame: FrameView, tracing: Tracing) -> frozenset[int] | None:
    """What leads to the next break and only reads numbers out of tensors."""
    return after_breaks.extend_break(frame, tracing)


@hookimpl
def armature_value_types() -> Iterable[ValueType]:
    """Value types for modules, arrays, and contexts that the program made before the frame."""
    return (
        *grad.VALUE_TYPES,
        *autocast.VALUE_TYPES,
        *generators.VALUE_TYPES,
        *profiler.VALUE_TYPES,
        *settings.VALUE_TYPES,
        *collectives.VALUE_TYPES,
        *dtensors.VALUE_TYPES,
        *limits.VALUE_TYPES,
        *arrays.value_types(),
        *module_values.VALUE_TYPES,
        *numpy_numbers.VALUE_TYPES,
        *numpy_draws.value_types(),
        *scripted.VALUE_TYPES,
        *versions.VALUE_TYPES,
    )


@hookimpl
def armature_polyfills() -> Iterable[Polyfill]:
    """Traceable versions of methods of torch's modules, and of operators that call functions."""
    return (*modules.polyfills(), *overrides.POLYFILLS, *control_flow.POLYFILLS)


@hookimpl
def armature_graph_backends() -> Mapping[str, Callable[..., object]]:
    """Named back ends for `armature.compile(backend=...)`."""
    return {"eager": graph_backends.eager, "aot_eager": graph_backends.aot_eager}


@hookimpl
def armature_passes() -> Iterable[Pass]:
    """Passes that decide where to cut graphs that run in several processes."""
    return data_parallel.PASSES


@hookimpl
def armature_break_types() -> Iterable[BreakType]:
    """The graph breaks that the handlers raise."""
    return breaks.ROWS
