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
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    own = {*kernels, *program.constants, *program.bindings, *(function.name for function in functions)}
    for function in functions:
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        local = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
        local |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
        unknown = {node.id for node in names if isinstance(node.ctx, ast.Load)} - local - own - {*dir(builtins)}
        invariant(not unknown, "the wrapper uses unknown names", function=function.name, names=sorted(unknown))
        invariant(not local & own, "a local name hides a kernel or an operator", names=sorted(local & own))
