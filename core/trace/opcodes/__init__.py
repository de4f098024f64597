"""The opcodes of the running Python: name to function."""

from __future__ import annotations

from collections.abc import Mapping

from armature.trace.bytecode.versions import VERSION
from armature.trace.opcodes import (
    attrs,
    build,
    exceptions,
    functions,
    generators,
    imports,
    jumps,
    match,
    names,
    operators,
    py312,
    py313,
    stack,
)
from armature.trace.opcodes.table import OpcodeFunction, collect_opcodes

SHARED = (stack, names, operators, build, attrs, functions, jumps, exceptions, generators, imports, match)
LATER = {(3, 11): (), (3, 12): (py312,), (3, 13): (py312, py313)}  # what replaces or adds to the shared opcodes

OPCODES: Mapping[str, OpcodeFunction] = collect_opcodes(*SHARED, *LATER[VERSION])
