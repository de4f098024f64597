"""What the processes of `processes` run: they compile one kernel after the other, until the program closes the
connection.

A job is a generated module's text and the file that holds it, a function's data, the compute capability, and the file
to write. The answer is "", or what the compiler says. Neither torch nor the core is imported here.
"""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path

import attrs

from armature_gpu_triton import first_kernel, toolchain
from armature_gpu_triton.spec import KernelSpec

IDLE = 60.0  # seconds without a job, after which a process ends
IDLE_FIRST = 900.0  # seconds for which the process that the others are forks of waits: another starts slowly

Job = tuple[str, str, KernelSpec, int, str]


def answer(job: Job) -> str:
    """Compile, and write the file. Errors are sent to the parent process, which knows the graph."""
    text, path, spec, capability, target = job
    try:
        function = toolchain.function_of(text, Path(path), spec.name)
        toolchain.compile_function(function, spec, capability).write(Path(target))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def answer_all(descriptor: int) -> None:
    """Answer jobs until none has come for a while, or the program is gone."""
    with Connection(descriptor) as program:
        try:
            while program.poll(IDLE):
                program.send(answer(program.recv()))
        except (EOFError, OSError):
            return


@attrs.define
class Forks:
    """The forks of this process. ended: exit statuses, of which the program may ask for each."""

    running: set[int] = attrs.field(factory=set)
    ended: dict[int, int] = attrs.field(factory=dict)

    def start(self, program: Connection) -> None:
        """Fork a process for the connection that the program sends, and tell its number."""
        descriptor = recv_handle(program)
        pid = os.fork()
        if not pid:
            program.close()
            try:
                answer_all(descriptor)
            finally:
                os._exit(0)
        os.close(descriptor)
        self.running.add(pid)
        program.send(pid)

    def wait(self, pid: int, flags: int = 0) -> None:
        """Note that a fork has ended, if it has; without flags, wait until it has."""
        done, status = os.waitpid(pid, flags) if pid in self.running else (0, 0)
        if done:
            self.running.discard(pid)
            self.ended[pid] = os.waitstatus_to_exitcode(status)

    def status_of(self, pid: int) -> int:
        """The exit status of a fork."""
        self.wait(pid)
        return self.ended.pop(pid)


def serve(descriptor: int) -> None:
    """Compile a kernel, report that this is done, then fork a process whenever the program asks for one: it sends None
    and a descriptor, or the number of a fork that has ended, whose status it wants to know."""
    forks = Forks()
    with Connection(descriptor) as program:
        try:
            toolchain.compile_function(first_kernel.add, first_kernel.SPEC, first_kernel.CAPABILITY)
            program.send("")
            until = time.monotonic() + IDLE_FIRST
            while forks.running or time.monotonic() < until:
                is_asked = program.poll(min(IDLE, IDLE_FIRST))
                for pid in tuple(forks.running):
                    forks.wait(pid, os.WNOHANG)
                if not is_asked:
                    continue
                asked, until = program.recv(), time.monotonic() + IDLE_FIRST
                if asked is None:
                    forks.start(program)
                else:
                    program.send(forks.status_of(asked))
        except (EOFError, OSError):
            return  # the program is gone
