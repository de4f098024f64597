"""Kernels compiled by processes of their own: what comes back, and what happens when one ends or can't start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from armature.backend_api import KernelSource
from armature.context import CompileContext
from armature.errors import BackendError
from armature.run.cache import Cache
from armature_gpu_triton import compiling, processes
from armature_gpu_triton.backend import _Build
from armature_gpu_triton.binary import Binary
from armature_gpu_triton.kernel_printer import HEADER
from armature_gpu_triton.processes import NoProcess, Processes
from armature_gpu_triton.spec import KernelSpec

KERNEL = """

@triton.jit
def double(x, out, XBLOCK: tl.constexpr):
    at = tl.arange(0, XBLOCK)
    tl.store(out + at, tl.load(x + at) * 2)
"""
TEXT = HEADER + KERNEL
SPEC = KernelSpec("double", ("*fp32", "*fp32"), (0, 1), (("XBLOCK", 128),), (1, 1, 1))


def job(folder: Path, spec: KernelSpec = SPEC, name: str = "double.cubin") -> compiling.Job:
    path = folder / "double.py"
    path.write_text(TEXT)
    return (TEXT, str(path), spec, 90, str(folder / name))


def build(tmp_path: Path, ctx: CompileContext, pool: Processes) -> _Build:
    source = KernelSource("triton", "python", TEXT, {}, meta={"bodies": {"double": KERNEL}})
    return _Build(source, attrs.evolve(ctx, cache=Cache(tmp_path / "cache"), events=[]), pool)


def children(pool: Processes) -> list[processes.Child]:
    return sorted(pool._children, key=lambda child: child.pid)


def test_kernels_are_compiled_side_by_side_by_a_limited_number_of_processes(tmp_path: Path) -> None:
    pool = Processes()
    with ThreadPoolExecutor(6) as threads:
        jobs = [job(tmp_path, name=f"{n}.cubin") for n in range(6)]
        assert set(threads.map(lambda each: pool.compile(each, 2), jobs)) == {""}
    assert {Binary.read(tmp_path / f"{n}.cubin").name for n in range(6)} == {"double"}
    assert 1 <= len(children(pool)) <= 2


def test_process_imports_neither_torch_nor_the_core() -> None:
    line = "import sys, armature_gpu_triton.compiling; print({'torch', 'armature'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_compiler_error_names_the_kernel(tmp_path: Path, compile_context: CompileContext) -> None:
    wrong = attrs.evolve(SPEC, constants=(("XBLOCK", 3),))
    with pytest.raises(BackendError, match="triton could not build double: CompilationError"):
        build(tmp_path, compile_context, Processes()).binary(wrong, 90)


def test_process_that_ended_is_replaced(tmp_path: Path) -> None:
    pool = Processes()
    assert pool.compile(job(tmp_path), 2) == ""
    (before,) = children(pool)
    os.kill(before.pid, signal.SIGKILL)
    assert pool.compile(job(tmp_path), 2) == ""
    (after,) = children(pool)
    assert after is not before and not alive(before.pid)


def test_processes_are_forks_of_one_that_starts_before_there_are_kernels(tmp_path: Path) -> None:
    pool = Processes()
    pool.prepare()
    pool.prepare()
    (original,) = pool._original
    assert not children(pool)
    assert pool.compile(job(tmp_path), 2) == ""
    (child,) = children(pool)
    assert pool._original == [original]
    assert parent_of(child.pid) == original.process.pid


def test_original_that_ended_is_replaced(tmp_path: Path) -> None:
    pool = Processes()
    pool.prepare()
    (original,) = pool._original
    original.process.kill()
    original.process.wait()
    assert pool.compile(job(tmp_path), 2) == ""
    assert pool._original != [original]


def test_crash_of_the_compiler_fails_one_kernel(
    tmp_path: Path, compile_context: CompileContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = (
        "answer = compiling.answer; compiling.answer = lambda job: os.abort() if job[2].num_warps == 1 else answer(job)"
    )
    crashing = processes.PROGRAM.replace("serve(", f"{crash}; serve(")
    crashing = crashing.replace("from armature", "import os; from armature_gpu_triton import compiling; from armature")
    monkeypatch.setattr(processes, "PROGRAM", crashing)
    pool = Processes()
    with pytest.raises(BackendError, match="process ended with status -6"):
        build(tmp_path, compile_context, pool).binary(attrs.evolve(SPEC, num_warps=1), 90)
    assert not children(pool)
    assert build(tmp_path, compile_context, pool).binary(SPEC, 90).name == "double"


@pytest.mark.parametrize("program", ["import nothing_of_this_name", "import time; time.sleep(600)", None])
def test_without_processes_kernels_are_compiled_here(
    program: str | None, tmp_path: Path, compile_context: CompileContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program is None:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    else:
        monkeypatch.setattr(processes, "PROGRAM", program)
        monkeypatch.setattr(processes, "STARTUP", 0.5)
    pool = Processes()
    with pytest.raises(NoProcess):
        pool.compile(job(tmp_path), 1)
    monkeypatch.undo()
    with pytest.raises(NoProcess):  # it is not tried for each kernel
        pool.compile(job(tmp_path), 1)
    assert not children(pool)
    assert build(tmp_path, compile_context, pool).binary(SPEC, 90).name == "double"


def test_fork_leaves_the_processes_to_its_parent(tmp_path: Path) -> None:
    pool = Processes()
    assert pool.compile(job(tmp_path), 1) == ""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            pool.compile(job(tmp_path), 1)
        except NoProcess:
            os.write(writer, b"refused")
        processes.end_all(pool._original, pool._owner)
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        assert told.read() == b"refused"
    assert pool.compile(job(tmp_path), 1) == "" and len(children(pool)) == 1


@pytest.mark.parametrize("ending", ["pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_processes_end_with_the_program(ending: str, tmp_path: Path) -> None:
    program = f"""
from armature_gpu_triton.processes import Processes
from armature_gpu_triton.spec import KernelSpec
pool = Processes()
assert pool.compile({job(tmp_path)!r}, 1) == ""
print(*[child.pid for child in pool._children], pool._original[0].process.pid, flush=True)
{ending}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert done.stderr == "" and len(pids) == 2
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def parent_of(pid: int) -> int:
    """The number of the process that started this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def impatient(monkeypatch: pytest.MonkeyPatch, kept: float) -> Processes:
    """A pool whose processes end at once without work, and the first one after `kept` seconds."""
    limits = f"compiling.IDLE, compiling.IDLE_FIRST = 0.1, {kept}"
    program = processes.PROGRAM.replace("serve(", f"{limits}; serve(")
    program = program.replace("from armature", "from armature_gpu_triton import compiling; from armature")
    monkeypatch.setattr(processes, "PROGRAM", program)
    return Processes()


def test_process_without_work_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = impatient(monkeypatch, 0.1)
    assert pool.compile(job(tmp_path), 1) == ""
    (child,), (original,) = children(pool), pool._original
    assert original.process.wait(20) == 0 and not alive(child.pid)
    assert pool.compile(job(tmp_path), 1) == ""


def test_the_first_process_is_there_for_later_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model may be compiled minutes later, and would wait until Triton is imported again."""
    pool = impatient(monkeypatch, 60)
    assert pool.compile(job(tmp_path), 1) == ""
    (child,), (original,) = children(pool), pool._original
    end = time.monotonic() + 20
    while alive(child.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(child.pid) and original.process.poll() is None
    assert pool.compile(job(tmp_path), 1) == ""
    assert pool._original == [original]
