"""What torch.compile makes of a program: its loops, and the calls of operators that it leaves, read from its code.

Nothing is built: in place of its code, the graph runs operator by operator. So counts take a fraction of a second.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import attrs
import torch
from torch import fx
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.graph import GraphLowering

# In the wrapper's code: `torch.ops.aten.gcd.default(`, `aten.sort.stable(`, `extern_kernels.mm(`.
CALL = re.compile(r"(?:torch\.ops\.(aten|prims|mkldnn|mkl|quantized|onednn)|\b(aten)|\b(extern_kernels))\.([\w.]+)\(")
SEEDS = "aten.randint.low_out"  # draws the seeds with which its kernels compute random numbers
LOOPS = re.compile(r"^\s*(?:\w+ = )?(?:cpp_\w+\(|triton_\w+\.run\()", re.MULTILINE)


@attrs.frozen
class Left:
    """How a program was compiled. whole: without a graph break. loops: launches of kernels. calls: of operators, by
    name."""

    whole: bool
    loops: int
    calls: Counter[str]

    @property
    def lowered(self) -> bool:
        """Whether no operator is called: it is loops, or memory in which there is nothing to compute."""
        return self.whole and not self.calls


@attrs.define(eq=False)
class _Unbuilt:
    """Stands for the module that is made of the code of a graph."""

    module: fx.GraphModule
    __file__ = "not built"

    def call(self, inputs: list[Any]) -> Any:
        """The graph's results, operator by operator."""
        given = [*inputs]
        inputs.clear()
        return fx.Interpreter(self.module).run(*given)


def left_by_torch_compile(program: Callable[[Any], Any]) -> Left:
    """Compile the program with torch.compile, by running it once. `program` is given what compiles a function.
    Errors: whatever torch.compile raises."""
    codes: list[str] = []

    def unbuilt(graph: GraphLowering) -> _Unbuilt:
        code, _ = graph.codegen()
        codes.append(getattr(code, "value", code))
        return _Unbuilt(graph.module)

    torch._dynamo.reset()
    counters.clear()
    settings = config.patch(fx_graph_cache=False, cpp_wrapper=False, compile_threads=1)
    with settings, mock.patch.object(GraphLowering, "compile_to_module", unbuilt):
        program(torch.compile)
    whole = not counters["graph_break"] and counters["stats"]["unique_graphs"] == 1
    return Left(whole, *_counted(codes))


def _counted(codes: list[str]) -> tuple[int, Counter[str]]:
    """The launches and the calls of operators in the code of wrappers."""
    loops, calls = 0, Counter[str]()
    for code in codes:
        body = re.split(r"\n\n", code[code.find("def call(") :], maxsplit=1)[0]
        loops += len(LOOPS.findall(body))
        for line in body.splitlines():
            for found in CALL.finditer(line.split("#")[0]):
                name = ".".join((found[1] or found[2] or found[3], found[4]))
                calls[name] += name != SEEDS
    return loops, +calls
