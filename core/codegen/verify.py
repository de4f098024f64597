"""The spec of a program; run in strict mode."""

from __future__ import annotations

import ast
import builtins

from armature.codegen.data import Program
from armature.errors import invariant


def verify(program: Program) -> None:
    """Raise InvariantError if the wrapper is not valid Python or uses an undefined name."""
    try:
        tree = ast.parse(program.wrapper)
    except SyntaxError as error:
        invariant(False, "the wrapper is not valid Python", program=program.name, error=str(error))
        return
    kernels = [name for source in program.sources for name in source.kernels]
    invariant(len(kernels) == len(set(kernels)), "two kernels with one name", kernels=kernels)
    invariant(len(kernels) == program.kernel_count, "a kernel without source", program=program.name)
    given = {*kernels, *program.constants, *program.bindings, *dir(builtins)}
    local = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    local |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    invariant(used <= given | local, "the wrapper uses unknown names", names=sorted(used - given - local))
    shadowed = local & {*kernels, *program.bindings, *program.constants}
    invariant(not shadowed, "a local name hides a kernel or an operator", names=sorted(shadowed))
