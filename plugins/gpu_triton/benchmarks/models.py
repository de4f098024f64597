"""Measures the Triton back end on a GPU: models against eager, a single launch, and memory-bound kernels against a
copy.

    python plugins/gpu_triton/benchmarks/models.py [--json FILE] [--budget S] [--only models,launch,memory] [--inductor]

Runs from a source tree with only armature's dependencies installed: it puts the tree's packages on the path, and
registers the plugins without entry points. A part that fails is reported, and the others still run.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import importlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = ("builtin_rules", "torch_handlers", "aten_lowerings", "cpu_cpp", "gpu_triton")
for folder in (ROOT / "src", *(ROOT / "plugins" / name for name in PLUGINS)):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

import torch  # noqa: E402

import armature  # noqa: E402
from armature import config  # noqa: E402
from armature.cli.demo import call_of, load_examples  # noqa: E402
from armature.lower.data import Buffer, Const, Load, Op, Store  # noqa: E402
from armature.lower.index import Var  # noqa: E402
from armature.pipeline.session import session  # noqa: E402
from armature.pipeline.stages import new_context  # noqa: E402
from armature.plugins import manager  # noqa: E402
from armature.schedule.data import Kernel, KernelPlan, Launch, Pass  # noqa: E402
from armature.testing.differential import compare_runs, run_model  # noqa: E402
from armature_gpu_triton import launch  # noqa: E402
from armature_gpu_triton.backend import TritonBackend, _Build  # noqa: E402
from armature_gpu_triton.processes import Processes  # noqa: E402

Call = Callable[[], Any]
Row = dict[str, Any]
RAW_LAUNCHES = """
#include <stdint.h>
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                        void **);
int many(launch_t launch, void *function, unsigned block, void *stream, uint64_t *values, int count) {
    uint64_t scratch = 0;
    void *params[] = {&values[0], &values[1], &scratch, &scratch};
    int code = 0;
    for (int i = 0; i < count && !code; ++i)
        code = launch(function, 1, 1, 1, block, 1, 1, 0, stream, params, 0);
    return code;
}
"""


def register_plugins() -> list[str]:
    """Register the plugins that entry points did not find. Returns the names of all plugins."""
    found = {p.name for p in manager().plugins}
    for name in PLUGINS:
        if name not in found:
            manager().register(importlib.import_module(f"armature_{name}.plugin"), name)
    return [p.name for p in manager().plugins]


def queued_ms(calls: Sequence[Call], budget: float, batch: int = 20) -> list[float]:
    """Median milliseconds per call, with `batch` calls queued before waiting, the calls measured alternately."""
    for call in calls:
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, row in zip(calls, times, strict=True):
            start = time.perf_counter()
            for _ in range(batch):
                call()
            torch.cuda.synchronize()
            row.append((time.perf_counter() - start) / batch * 1e3)
    return [statistics.median(row) for row in times]


def device_ms(call: Call, repeats: int = 30) -> float:
    """Median milliseconds on the device, by events, with the second-level cache flushed before each call."""
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    call()
    pairs = []
    for _ in range(repeats):
        flush.zero_()
        pair = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        pair[0].record()
        call()
        pair[1].record()
        pairs.append(pair)
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairs)


def measure_model(make: Callable[[], Any], mode: str, budget: float, inductor: bool) -> Row:
    """One example in one mode."""
    armature.reset()
    torch.manual_seed(0)
    example = make()
    example.model.to("cuda").train(mode == "train")
    example.inputs = tuple(t.to("cuda") for t in example.inputs)
    loss = example.loss if mode == "train" else None
    reference = copy.deepcopy(example.model)
    compiled = armature.compile(example.model, fullgraph=True)
    with torch.set_grad_enabled(mode == "train"):
        eager_run = run_model(reference, reference, example.inputs, loss)
        start = time.perf_counter()
        compiled_run = run_model(example.model, compiled, example.inputs, loss)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        error = compare_runs(eager_run, compiled_run)
    totals = session().totals()
    calls = [call_of(example, example.model, mode), call_of(example, compiled, mode)]
    if inductor:
        calls.append(call_of(example, torch.compile(copy.deepcopy(example.model)), mode))
    times = queued_ms(calls, budget)
    row: Row = {
        "model": example.name, "mode": mode, "graphs": totals.graphs, "kernels": totals.kernels,
        "extern": totals.extern, "compile_s": seconds, "error": error, "tolerance": example.tolerance,
        "eager_ms": times[0], "armature_ms": times[1], "ratio": times[0] / times[1],
    }  # fmt: skip
    if inductor:
        row["inductor_ms"] = times[2]
    return row


def models(args: argparse.Namespace) -> list[Row]:
    """All examples, inference and training."""
    rows: list[Row] = []
    for name, make in load_examples().items():
        for mode in ("infer", "train"):
            try:
                rows.append(measure_model(make, mode, args.budget, args.inductor))
            except Exception as error:
                traceback.print_exc()
                rows.append({"model": name, "mode": mode, "failed": f"{type(error).__name__}: {error}"[:500]})
            print(show(rows[-1]), flush=True)
    return rows


def scale_kernel(count: int) -> tuple[Kernel, KernelPlan]:
    """out = x * 2, built by hand."""
    device, f32 = torch.device("cuda", torch.cuda.current_device()), torch.float32
    i = Var("i", count)
    buffers = {n: Buffer(n, f32, device, (count,), (1,)) for n in ("x", "out")}
    value = Op("mul", (Load("x", (i,), f32), Const(2.0, f32)), f32)
    kernel = Kernel("scale_0", device, (i,), (), (Pass((), (), (Store("out", (i,), value),)),), ("x",), ("out",))
    return kernel, KernelPlan("scale", (), {}, buffers, (Launch(kernel),), (), {})


def per_launch_us(call: Call, rounds: int = 200, batch: int = 400) -> float:
    """Microseconds of host time per launch, with the queue never full."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(batch):
            call()
        times.append((time.perf_counter() - start) / batch * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def raw_launch_us(function: int, block: int, pointers: Sequence[int], rounds: int = 200, batch: int = 400) -> float:
    """The same for cuLaunchKernel in a C loop."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "raw.c"), Path(folder, "raw.so")
        source.write_text(RAW_LAUNCHES)
        tool = launch.compiler() or "cc"
        subprocess.run([*tool.split(), "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        many = ctypes.CDLL(str(library)).many
    entry = ctypes.cast(ctypes.CDLL(launch.DRIVER).cuLaunchKernel, ctypes.c_void_p)
    values = (ctypes.c_uint64 * 2)(*pointers)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        code = many(entry, ctypes.c_void_p(function), block, stream, values, batch)
        times.append((time.perf_counter() - start) / batch * 1e6)
        if code:
            raise RuntimeError(f"cuLaunchKernel failed with {code}")
    torch.cuda.synchronize()
    return statistics.median(times)


def launches(args: argparse.Namespace) -> list[Row]:
    """Host time of one kernel: the bare driver call in C, armature's launcher, a torch operator, Triton's own way."""
    ctx = new_context(config.current(), manager().tables(), 0)
    backend = TritonBackend(interpret=False)
    kernel, plan = scale_kernel(128)
    source = backend.generate([kernel], plan, ctx)
    call = backend.build(source, ctx)[kernel.name]
    x, out = torch.randn(128, device="cuda"), torch.empty(128, device="cuda")
    call(x, out)
    torch.testing.assert_close(out, x * 2)
    spec = launch.specs_of(source.meta["groups"])[0]  # type: ignore[arg-type]
    major, minor = torch.cuda.get_device_capability()
    build = _Build(source, ctx, Processes())
    binary = build.binary(spec, major * 10 + minor)
    function = launch.native(ctx).load(binary.cubin, binary.name, binary.shared, torch.cuda.current_device())
    jit = build.functions()[kernel.name]
    constants = dict(spec.constants)
    ways: dict[str, Call] = {
        "cuLaunchKernel in a C loop": lambda: raw_launch_us(function, binary.block, (x.data_ptr(), out.data_ptr())),
        "armature": lambda: per_launch_us(lambda: call(x, out)),
        "torch.mul(x, 2, out=out)": lambda: per_launch_us(lambda: torch.mul(x, 2, out=out)),
        "Triton's own launcher": lambda: per_launch_us(lambda: jit[(1, 1, 1)](x, out, **constants)),
    }
    rows: list[Row] = []
    for name, way in ways.items():
        try:
            rows.append({"launch": name, "us": way()})
        except Exception as error:
            traceback.print_exc()
            rows.append({"launch": name, "failed": f"{type(error).__name__}: {error}"[:500]})
        print(show(rows[-1]), flush=True)
    return rows


def memory_cases() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]]:
    """Maps each name to function, inputs and minimum bytes moved."""
    n = 1 << 28
    flat = torch.randn(n, device="cuda")
    other = torch.randn(n, device="cuda")
    rows = torch.randn(1 << 16, 1 << 12, device="cuda")
    half = rows.bfloat16()
    weight = torch.randn(1 << 12, device="cuda")
    functional = torch.nn.functional
    size = n * 4
    return {
        "x * 2 + 1": (lambda x: x * 2 + 1, (flat,), 2 * size),
        "gelu(x + y)": (lambda x, y: functional.gelu(x + y), (flat, other), 3 * size),
        "gelu(x), bfloat16": (functional.gelu, (half,), size),
        "softmax of rows of 4096": (lambda x: torch.softmax(x, -1), (rows,), 2 * size),
        "layer_norm of rows of 4096": (lambda x, w: functional.layer_norm(x, (4096,), w, w), (rows, weight), 2 * size),
        "sum of everything": (torch.sum, (flat,), size),
        "sum of columns": (lambda x: x.sum(0), (rows,), size),
        "sum of rows": (lambda x: x.sum(1), (rows,), size),
    }


def copy_bandwidth() -> float:
    """GB/s, read and written, of a copy of 1 GiB by torch."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / device_ms(lambda: target.copy_(source)) / 1e6


def memory(args: argparse.Namespace) -> list[Row]:
    """Bandwidth against a copy of 1 GiB on the same device."""
    copied = copy_bandwidth()
    rows: list[Row] = [{"kernel": "torch copy", "armature_gb_s": copied, "of_copy": 1.0}]
    print(show(rows[0]), flush=True)
    for name, (function, inputs, moved) in memory_cases().items():
        try:
            armature.reset()
            compiled = armature.compile(function)
            gap = (function(*inputs).double() - compiled(*inputs).double()).abs().max().item()
            ours = moved / device_ms(lambda: compiled(*inputs)) / 1e6  # noqa: B023  # called in this round only
            eager = moved / device_ms(lambda: function(*inputs)) / 1e6  # noqa: B023
            row = {"kernel": name, "armature_gb_s": ours, "of_copy": ours / copied, "eager_gb_s": eager, "error": gap}
            rows.append(row)
        except Exception as error:
            traceback.print_exc()
            rows.append({"kernel": name, "failed": f"{type(error).__name__}: {error}"[:500]})
        print(show(rows[-1]), flush=True)
    return rows


def show(row: Row) -> str:
    """A row as a line of text."""
    parts = [f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()]
    return "  ".join(parts)


PARTS = {"models": models, "launch": launches, "memory": memory}


def main() -> int:
    """Run the requested parts; 1 if one failed or a model exceeds its tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of measuring a model and mode")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--inductor", action="store_true", help="measure torch.compile too")
    args = parser.parse_args()
    names = register_plugins()
    machine = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "plugins": names,
        "missing": TritonBackend().missing(),
    }  # fmt: skip
    print(machine)
    data: dict[str, Any] = {"machine": machine}
    for name in args.only.split(","):
        print(f"== {name}", flush=True)
        try:
            data[name] = PARTS[name](args)
        except Exception as error:
            traceback.print_exc()
            data[name] = [{"failed": f"{type(error).__name__}: {error}"[:500]}]
    ratios = [r["ratio"] for r in data.get("models", []) if "ratio" in r]
    if ratios:
        data["geometric_mean"] = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean of eager / armature over {len(ratios)} runs: {data['geometric_mean']:.3f}")
    if args.json:
        args.json.write_text(json.dumps(data, indent=1) + "\n")
    every = [row for name in PARTS for row in data.get(name, [])]
    return int(any("failed" in row or row.get("error", 0.0) > row.get("tolerance", math.inf) for row in every))


if __name__ == "__main__":
    sys.exit(main())
