"""The catalogue of graph breaks: what each type means, in words, and what to do about it. A module for each family."""

from armature_builtin_rules.breaks import (
    c_code,
    calls,
    containers,
    control_flow,
    data_dependent,
    exceptions,
    library,
    lifetimes,
    objects,
    operators,
    tensors,
    world,
)

FAMILIES = (
    c_code,
    calls,
    containers,
    control_flow,
    data_dependent,
    exceptions,
    library,
    lifetimes,
    objects,
    operators,
    tensors,
    world,
)
