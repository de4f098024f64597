"""Processes that compile kernels.

Most of Triton's work is done in Python, so that threads of one process do it one after the other. Importing Triton and
compiling a first kernel, for which it reads its whole installation, takes a second or two: one process does that while
the program is still being traced, and the others are forks of it. They end a minute after the last kernel, the first
one a quarter of an hour after it, or with the program. One that crashes (LLVM does, at times) makes one kernel fail,
not the program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import weakref
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from armature_gpu_triton.compiling import Job

# The program's own __main__ is not imported, as `multiprocessing` would do.
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; from armature_gpu_triton.compiling import serve; serve(int(sys.argv[1]))"
)

STARTUP = 60.0  # seconds in which a process has to be ready


class NoProcess(Exception):
    """A process can't be started here."""


@attrs.define(eq=False)
class Original:
    """The process that the compiler processes are forks of, and the connection to it. It compiles nothing for the
    program. Not safe between threads."""

    process: subprocess.Popen[bytes]
    connection: Connection
    ready: bool = False

    @classmethod
    def started(cls) -> Original:
        """Start it, without waiting until it is ready. Errors: NoProcess."""
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
        return cls(process, ours)

    def copy(self) -> Child:
        """A fork of the process. Errors: EOFError or OSError if it has ended; NoProcess if it was never ready."""
        self.wait()
        ours, theirs = Pipe()
        try:
            with theirs:
                self.connection.send(None)
                send_handle(self.connection, theirs.fileno(), self.process.pid)
                pid: int = self.connection.recv()
        except (EOFError, OSError):
            ours.close()
            raise
        return Child(pid, ours)

    def wait(self) -> None:
        """Wait until the process is ready. Errors: NoProcess."""
        if not self.ready:
            try:
                # it never is if `sys.executable` is a program that embeds Python
                if not self.connection.poll(STARTUP):
                    raise NoProcess
                self.connection.recv()
            except (EOFError, OSError) as error:
                raise NoProcess from error
            self.ready = True

    def status_of(self, child: Child) -> int | None:
        """Wait until a fork has ended, and return its exit status; None if the original has ended too."""
        try:
            self.connection.send(child.pid)
            status: int = self.connection.recv()
        except (EOFError, OSError):
            return None
        return status

    def end(self) -> None:
        """End the process and its forks."""
        self.connection.close()
        if self.process.returncode is None:  # nobody has waited for it, so that the number of its group is not reused
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@attrs.frozen(eq=False)
class Child:
    """A compiler process, and the connection to it. Without the connection it ends."""

    pid: int
    connection: Connection

    def ask(self, job: Job) -> str:
        """Send a job, and return the answer. Errors: EOFError or OSError if the process has ended."""
        self.connection.send(job)
        told: str = self.connection.recv()
        return told


def end_all(originals: list[Original], owner: int) -> None:
    """End the processes, unless this process is a fork of the one that started them."""
    if os.getpid() == owner:
        for original in originals:
            original.end()


@attrs.define(eq=False)
class Processes:
    """A pool of compiler processes, one per concurrent job, up to a limit."""

    _children: set[Child] = attrs.field(factory=set, init=False)
    _idle: list[Child] = attrs.field(factory=list, init=False)
    _starting: int = attrs.field(default=0, init=False)
    _possible: bool = attrs.field(default=True, init=False)  # False once a process could not be started
    _changed: threading.Condition = attrs.field(factory=threading.Condition, init=False)
    _original: list[Original] = attrs.field(factory=list, init=False)  # the one that runs, if one does
    _forking: threading.Lock = attrs.field(factory=threading.Lock, init=False)  # held while `_original` is used
    _owner: int = attrs.field(factory=os.getpid, init=False)

    def __attrs_post_init__(self) -> None:
        weakref.finalize(self, end_all, self._original, self._owner)

    @property
    def usable(self) -> bool:
        """Whether processes can be started; not in a fork of the program, because they belong to its parent."""
        return os.getpid() == self._owner and self._possible

    def prepare(self) -> None:
        """Start the process that the others are forks of, if none runs, without waiting for it."""
        if self.usable and self._forking.acquire(blocking=False):  # else it is being started
            try:
                self.original()
            except NoProcess:
                self._possible = False
            finally:
                self._forking.release()

    def compile(self, job: Job, limit: int) -> str:
        """Compile in one of at most `limit` processes; "" or the compiler's message. Errors: NoProcess."""
        if not self.usable:
            raise NoProcess
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
            with self._forking:
                child = self.forked()
            return child
        finally:
            with self._changed:
                self._starting -= 1
                self._possible = child is not None
                self._children.update(() if child is None else (child,))
                self._changed.notify()

    def forked(self) -> Child:
        """A fork of the original. Errors: NoProcess."""
        if not self._possible:
            raise NoProcess
        for _ in range(2):  # it may end just now, because it was not used for a while
            try:
                return self.original().copy()
            except NoProcess:
                self.forget()
                raise
            except (EOFError, OSError):
                self.forget()
        raise NoProcess

    def original(self) -> Original:
        """The process that the others are forks of, started now if none runs. Errors: NoProcess."""
        if self._original and self._original[0].process.poll() is not None:
            self.forget()  # it was not used for a while
        if not self._original:
            self._original.append(Original.started())
        return self._original[0]

    def forget(self) -> None:
        """End the original, if there is one."""
        while self._original:
            self._original.pop().end()

    def keep(self, child: Child) -> None:
        """Return a process to the pool of idle ones."""
        with self._changed:
            self._idle.append(child)
            self._changed.notify()

    def drop(self, child: Child) -> int | None:
        """Forget a process that has ended. Returns its exit status, if that is known."""
        with self._changed:
            self._children.discard(child)
            self._changed.notify()
        child.connection.close()
        with self._forking:
            return self._original[0].status_of(child) if self._original else None
