"""The opcodes of the running Python: name to function."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from armature.trace.opcodes import (
    attrs,
    build,
    call,
    exceptions,
    generators,
    imports,
    jumps,
    match,
    names,
    operators,
    py311,
    py312,
    py313,
    stack,
)
from armature.trace.opcodes.table import OpcodeFunction, collect_opcodes

SHARED = (stack, names, operators, build, attrs, call, jumps, exceptions, generators, imports, match)
VERSIONS = {(3, 11): (py311,), (3, 12): (py312,), (3, 13): (py312, py313)}

OPCODES: Mapping[str, OpcodeFunction] = collect_opcodes(*SHARED, *VERSIONS[sys.version_info[:2]])
