"""Reduces a graph to the smallest one that still has a fault: an error, values that differ from eager mode's, or
slowness."""

from __future__ import annotations

import copy
import runpy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import fx, nn

import armature
from armature import config
from armature.errors import ArmatureError
from armature.pipeline.repro import INPUTS, KINDS, SCRIPT, CannotWrite, script
from armature.pipeline.session import session

TOLERANCE = 1e-3  # allowed difference from eager mode's values, relative and absolute
LEAST = 0.5e-3  # seconds that a call must be slower than eager mode; the overhead of calling compiled code is less
SLOWER = 1.5  # factor by which a call must be slower than eager mode
CALLS = 5

Judge = Callable[[fx.GraphModule, Sequence[object], str, str], str]  # called like `fault`


class NoGraphToMinify(ArmatureError):
    """There is no script of a graph at the path."""

    code = "A247"
    text = "{path} is no script of a graph: {problem}"
    hint = "Give a folder that `armature repro SCRIPT` or ARMATURE_REPRO_DIR has left, or the repro.py in it."


class NothingToMinify(ArmatureError):
    """The graph does not have the fault that is to be reduced."""

    code = "A244"
    text = "{path} does not show it: {problem}"
    hint = "Choose what it shows with --kind error, wrong or slow."


def shows(model: nn.Module, inputs: Sequence[object], backend: str, kind: str) -> int:
    """Print the fault. Returns the exit status: 1 if there is a fault, else 0."""
    said = fault(model, inputs, backend, kind)
    print(said or "all is well")
    return int(bool(said))


def fault(model: nn.Module, inputs: Sequence[object], backend: str, kind: str) -> str:
    """The fault that appears when the model is compiled; "" if there is none. Errors: those of eager mode."""
    return FAULTS[kind](model, inputs, backend)


def error_of(model: nn.Module, inputs: Sequence[object], backend: str) -> str:
    """The error raised by compiling the model or by its first call; "" if there is none."""
    eager(model, inputs)
    try:
        compiled(model, backend)(*copied(inputs))
    except Exception as error:  # any error counts, because it is the fault to reproduce
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def wrong_values(model: nn.Module, inputs: Sequence[object], backend: str) -> str:
    """How the results differ from eager mode's; "" if they agree. A model that raises has another kind of fault."""
    expected = eager(model, inputs)
    try:
        found = compiled(model, backend)(*copied(inputs))
    except Exception:
        return ""
    try:
        torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    except AssertionError as difference:
        return str(difference)
    return ""


def slowness(model: nn.Module, inputs: Sequence[object], backend: str) -> str:
    """How much slower than eager mode it is."""
    run = compiled(model, backend)
    try:
        run(*copied(inputs))
    except Exception:
        return ""
    ours, theirs = seconds(run, inputs), seconds(model, inputs)
    is_slow = ours > SLOWER * theirs and ours - theirs > LEAST
    return f"{ours / theirs:.1f} times eager mode's {theirs * 1e3:.3f} ms" if is_slow else ""


FAULTS: dict[str, Callable[[nn.Module, Sequence[object], str], str]] = dict(
    zip(KINDS, (error_of, wrong_values, slowness), strict=True)
)


def compiled(model: nn.Module, backend: str) -> Callable[..., Any]:
    """Compile the model anew, in strict mode, so that errors are raised."""
    session().forget_code()
    run = armature.compile(model, backend=backend)

    def call(*args: object) -> Any:
        with config.patch(strict=True):
            return run(*args)

    return call


def eager(model: nn.Module, inputs: Sequence[object]) -> Any:
    """The result without a compiler."""
    return model(*copied(inputs))


def copied(inputs: Sequence[object]) -> list[object]:
    """Copies of the inputs, because the model may write to them."""
    return copy.deepcopy(list(inputs))


def seconds(run: Callable[..., Any], inputs: Sequence[object]) -> float:
    """Seconds of one call: the median of several."""
    taken = []
    for _ in range(CALLS):
        given = copied(inputs)
        start = time.perf_counter()
        run(*given)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


@attrs.define(eq=False)
class Minifier:
    """Makes a graph smaller for as long as it has the fault. tries: the number of graphs that were tested. on_test:
    called after each test.

    judge: tests a graph; `fault` does so in this process.
    """

    backend: str
    kind: str
    on_test: Callable[[int, int], None] = lambda tries, nodes: None
    judge: Judge = fault
    tries: int = 0
    fault: str = ""

    def smallest(self, graph: fx.GraphModule, inputs: Sequence[object]) -> tuple[fx.GraphModule, list[object]]:
        """The smallest graph that is found, with its inputs. Errors: NothingToMinify."""
        self.fault = self.judge(graph, inputs, self.backend, self.kind)
        if not self.fault:
            raise NothingToMinify(path="the graph", problem=f"there is no such fault: {self.kind}")
        best, given = graph, list(inputs)
        while True:
            smaller = self._smaller(best, given)
            if smaller is None:
                return best, given
            best, given = smaller

    def _smaller(self, graph: fx.GraphModule, inputs: list[object]) -> tuple[fx.GraphModule, list[object]] | None:
        for made, given in candidates(graph, inputs):
            if operators(made) < operators(graph) and self._has_it(made, given):
                return made, given
        return None

    def _has_it(self, graph: fx.GraphModule, inputs: list[object]) -> bool:
        self.tries += 1
        try:
            found = self.judge(graph, inputs, self.backend, self.kind)
        except Exception:  # the smaller graph fails in eager mode
            found = ""
        self.on_test(self.tries, operators(graph))
        # An error of another class counts as another fault.
        same = found.partition(":")[0] == self.fault.partition(":")[0] if self.kind == "error" else bool(found)
        if not (found and same):
            return False
        self.fault = found
        return True


def operators(graph: fx.GraphModule) -> int:
    """Calls in a graph."""
    return sum(node.op.startswith("call_") for node in graph.graph.nodes)


def candidates(graph: fx.GraphModule, inputs: list[object]) -> Iterator[tuple[fx.GraphModule, list[object]]]:
    """Smaller graphs, those with most removed first. A graph is cut off after a part, or the results of a part become
    inputs."""
    calls = [node.name for node in graph.graph.nodes if node.op.startswith("call_")]
    values = values_of(graph, inputs)
    step = len(calls) // 2
    while step:
        for begin in range(0, len(calls), step):
            kept = calls[begin : begin + step]
            tensors = [name for name in kept if isinstance(values.get(name), torch.Tensor)]
            if tensors:  # cut the graph off after this part
                yield rewritten(graph, inputs, values, given=(), result=tensors[-1])
            yield rewritten(graph, inputs, values, given=tensors, result=None)
        step //= 2


def values_of(graph: fx.GraphModule, inputs: list[object]) -> dict[str, object]:
    """The value of each node in eager mode."""
    found: dict[str, object] = {}

    class Keeping(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            found[n.name] = result.detach().clone() if isinstance(result, torch.Tensor) else result
            return result

    Keeping(graph).run(*copied(inputs))
    return found


def rewritten(
    graph: fx.GraphModule, inputs: list[object], values: dict[str, object], given: Sequence[str], result: str | None
) -> tuple[fx.GraphModule, list[object]]:
    """A copy of the graph in which the nodes `given` become inputs with their values. It returns the node `result`;
    None: the original results."""
    made = copy.deepcopy(graph)
    nodes = {node.name: node for node in made.graph.nodes}
    holders = [node for node in made.graph.nodes if node.op == "placeholder"]
    kept = dict(zip(holders, inputs, strict=True))
    for name in given:
        node = nodes[name]
        with made.graph.inserting_before(holders[0] if holders else node):
            holder = made.graph.placeholder(f"given_{name}")
        node.replace_all_uses_with(holder)
        kept[holder] = values[name]
    if result is not None:
        made.graph.output_node().args = ((nodes[result],),)
    made.graph.eliminate_dead_code()
    for holder in [node for node in made.graph.nodes if node.op == "placeholder" and not node.users]:
        made.graph.erase_node(holder)
        del kept[holder]
    made.recompile()
    return made, [kept[node] for node in made.graph.nodes if node.op == "placeholder"]


def minify(folder: Path, kind: str, on_test: Callable[[int, int], None], judge: Judge) -> tuple[Path, Minifier, int]:
    """Reduce the graph of the script in `folder`, and write the result to its subfolder `minified`. Returns the new
    script, the minifier and the graph's size.

    Errors: NoGraphToMinify, NothingToMinify, OSError.
    """
    path = folder / SCRIPT if folder.is_dir() else folder
    try:
        names = runpy.run_path(str(path))
        model, inputs = names["Graph"](), list(names["inputs"]())
    except Exception as error:
        raise NoGraphToMinify(path=path, problem=f"{type(error).__name__}: {error}") from error
    graph = fx.symbolic_trace(model)
    found = Minifier(str(names.get("BACKEND", "auto")), kind, on_test, judge)
    target = path.parent / "minified"
    target.mkdir(exist_ok=True)
    try:
        smallest, given = found.smallest(graph, inputs)
        text = script(smallest, given, found.backend, kind, saved=True)
    except CannotWrite as error:
        raise NothingToMinify(path=path, problem=str(error)) from error
    (target / SCRIPT).write_text(text, encoding="utf-8")
    torch.save(given, target / INPUTS)
    return target / SCRIPT, found, operators(smallest)
