"""Processes that compile kernels.

Most of Triton's work is done in Python, so that threads of one process do it one after the other. A process starts
with the first kernels that have to be compiled, and ends a minute after the last one, or with the program. One that
crashes (LLVM does, at times) makes one kernel fail, not the program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from armature_gpu_triton.compiling import Job

# The program's own __main__ is not imported, as `multiprocessing` would do.
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; from armature_gpu_triton.compiling import serve; serve(int(sys.argv[1]))"
)


GRACE = 0.2  # seconds in which a process may end by itself
STARTUP = 60.0  # seconds in which it has to be ready


class NoProcess(Exception):
    """A process can't be started here."""


@attrs.frozen(eq=False)
class Child:
    """One process, and the connection to it."""

    process: subprocess.Popen[bytes]
    connection: Connection

    @classmethod
    def started(cls) -> Child:
        """Start a process, and wait until it has imported what it needs. Errors: NoProcess."""
        ours, theirs = Pipe()
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        with theirs:
            command = [sys.executable or "python3", "-c", PROGRAM, str(theirs.fileno()), *sys.path]
            try:
                # A process group of its own, so that Ctrl-C only reaches the program.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=environment,
                    process_group=0,
                )
            except (OSError, ValueError) as error:  # ValueError: descriptors can't be passed on here
                ours.close()
                raise NoProcess from error
        child = cls(process, ours)
        try:
            if ours.poll(STARTUP):  # it never does if `sys.executable` is a program that embeds Python
                ours.recv()
                return child
        except (EOFError, OSError):
            pass
        child.end()
        raise NoProcess

    def ask(self, job: Job) -> str:
        """Send a job, and return the answer. Errors: EOFError or OSError if the process has ended."""
        self.connection.send(job)
        told: str = self.connection.recv()
        return told

    def end(self) -> int:
        """End the process if it still runs. Returns its exit status."""
        self.connection.close()  # without a job, this ends it
        try:
            return self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def end_all(children: set[Child], owner: int) -> None:
    """End the processes, unless this process is a fork of the one that started them."""
    if os.getpid() == owner:
        for child in children:
            child.process.kill()
            child.process.wait()


@attrs.define(eq=False)
class Processes:
    """A pool of compiler processes, one per concurrent job, up to a limit."""

    _children: set[Child] = attrs.field(factory=set, init=False)
    _idle: list[Child] = attrs.field(factory=list, init=False)
    _starting: int = attrs.field(default=0, init=False)
    _possible: bool = attrs.field(default=True, init=False)  # False once a process could not be started
    _changed: threading.Condition = attrs.field(factory=threading.Condition, init=False)
    _owner: int = attrs.field(factory=os.getpid, init=False)

    def __attrs_post_init__(self) -> None:
        weakref.finalize(self, end_all, self._children, self._owner)

    def compile(self, job: Job, limit: int) -> str:
        """Compile in one of at most `limit` processes; "" or the compiler's message. Errors: NoProcess."""
        if os.getpid() != self._owner or not self._possible:
            raise NoProcess  # this process is a fork: the processes belong to its parent
        while True:
            child = self.idle(limit)
            fresh = child is None
            child = child or self.start()
            try:
                told = child.ask(job)
            except (EOFError, OSError):
                status = self.drop(child)
                if fresh:
                    return f"the compiler's process ended with status {status}"
                continue  # the process ended before it got the job, probably because it had been idle too long
            self.keep(child)
            return told

    def idle(self, limit: int) -> Child | None:
        """Wait for an idle process and return it; None as soon as another process may be started."""
        with self._changed:
            while not self._idle and len(self._children) + self._starting >= limit:
                self._changed.wait()
            if self._idle:
                return self._idle.pop()
            self._starting += 1
            return None

    def start(self) -> Child:
        """A new process. Errors: NoProcess."""
        child = None
        try:
            child = Child.started()
            return child
        finally:
            with self._changed:
                self._starting -= 1
                self._possible = child is not None
                self._children.update(() if child is None else (child,))
                self._changed.notify()

    def keep(self, child: Child) -> None:
        """Return a process to the pool of idle ones."""
        with self._changed:
            self._idle.append(child)
            self._changed.notify()

    def drop(self, child: Child) -> int:
        """Forget a process that has ended. Returns its exit status."""
        with self._changed:
            self._children.discard(child)
            self._changed.notify()
        return child.end()
