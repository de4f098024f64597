"""What a process of `processes` runs: it compiles one kernel after the other, until its parent closes the connection.

A job is a generated module's text and the file that holds it, a function's data, the compute capability, and the file
to write. The answer is "", or what the compiler says. Neither torch nor the core is imported here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from armature_gpu_triton import toolchain
from armature_gpu_triton.spec import KernelSpec

IDLE = 60.0  # seconds without a job, after which the process ends

Job = tuple[str, str, KernelSpec, int, str]


@functools.lru_cache(maxsize=4)
def functions_of(text: str, path: str) -> Mapping[str, object]:
    """The functions of a generated module."""
    return toolchain.functions_of(text, Path(path))


def answer(job: Job) -> str:
    """Compile, and write the file. Errors are sent to the parent process, which knows the graph."""
    text, path, spec, capability, target = job
    try:
        toolchain.compile_function(functions_of(text, path)[spec.name], spec, capability).write(Path(target))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def serve(descriptor: int) -> None:
    """Report that all imports are done, then answer jobs."""
    with Connection(descriptor) as parent:
        try:
            parent.send("")
            while parent.poll(IDLE):
                parent.send(answer(parent.recv()))
        except (EOFError, OSError):
            return  # the parent is gone
