"""Compiles a kernel's text to a cubin ahead of time, which needs neither a GPU nor a CUDA toolkit.

The only module that calls Triton's compiler; Triton 3.4 to 3.7 take the same arguments. The result is one file per
kernel (`binary`), so that a later process never imports Triton. It imports neither torch nor the core, so that a
process that only compiles (`processes`) starts in half a second.
"""

from __future__ import annotations

import ast
import functools
import tempfile
import threading
import types
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from armature_gpu_triton.binary import Binary
from armature_gpu_triton.spec import KernelSpec

WARP = 32
ALIGNED = (("tt.divisibility", 16),)


class Scratch:
    """While a kernel is compiled, Triton's own cache is in a temporary folder of this process.

    Its usual cache is read back without a check, and may be in a read-only folder. The setting applies to all threads:
    the first concurrent compilation sets it, the last one resets it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.open = ExitStack()

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                folder = self.open.enter_context(tempfile.TemporaryDirectory(prefix="armature-triton-"))
                self.open.enter_context(knobs.cache.scope())
                knobs.cache.dir = folder
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.open.close()


SCRATCH = Scratch()


def functions_of(code: str | ast.Module, path: Path) -> Mapping[str, object]:
    """Run a generated module at `path` (Triton reads its source from there)."""
    namespace: dict[str, object] = {"__name__": f"armature_generated.{path.stem}", "__file__": str(path)}
    exec(compile(code, str(path), "exec"), namespace)
    return namespace


@functools.lru_cache(maxsize=4)
def parsed(text: str) -> ast.Module:
    """The syntax tree of a generated module."""
    return ast.parse(text)


def function_of(text: str, path: Path, name: str) -> object:
    """One function of a generated module at `path`. The others are not made: Triton reads the source of each."""
    wanted = [node for node in parsed(text).body if not isinstance(node, ast.FunctionDef) or node.name == name]
    return functions_of(ast.Module(wanted, []), path)[name]


def python_function(function: object) -> types.FunctionType:
    """The plain function below `@triton.jit`."""
    plain = getattr(function, "fn", None)
    if not isinstance(plain, types.FunctionType):
        raise TypeError(f"not a Triton function: {function!r}")
    return plain


def compile_function(function: object, spec: KernelSpec, capability: int) -> Binary:
    """Compile for compute capability `capability` (80, 90). Errors: Triton's own."""
    kernel = JITFunction(python_function(function))
    names = kernel.arg_names
    runtime = names[: len(spec.signature)]
    signature = dict(zip(runtime, spec.signature, strict=True)) | {n: "constexpr" for n, _ in spec.constants}
    constants = {(names.index(n),): value for n, value in spec.constants}
    alignment = {(i,): [list(row) for row in ALIGNED] for i in spec.aligned}
    options: dict[str, object] = {
        "num_warps": spec.num_warps,
        "num_stages": spec.num_stages,
        "debug": spec.asserts,
        "sanitize_overflow": False,
        "enable_fp_fusion": True,
    }
    source = ASTSource(kernel, signature, constants, alignment)
    with SCRATCH:
        built = triton.compile(source, target=GPUTarget("cuda", capability, WARP), options=options)
    facts = built.metadata
    return Binary(facts.name, built.asm["cubin"], facts.shared, facts.num_warps * WARP)
