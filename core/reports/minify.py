"""The smallest graph that still shows what goes wrong: an error, other values than eager mode's, or slowness."""

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

TOLERANCE = 1e-3  # of values beside eager mode's, relative and absolute
LEAST = 0.5e-3  # seconds more than eager mode's; a call from here takes less, whatever the graph
SLOWER = 1.5  # times eager mode's time
CALLS = 5

Judge = Callable[[fx.GraphModule, Sequence[object], str, str], str]  # as `fault`


class NoGraphToMinify(ArmatureError):
    """There is no script of a graph at the path."""

    code = "A247"
    text = "{path} is no script of a graph: {problem}"
    hint = "Give a folder that `armature repro SCRIPT` or ARMATURE_REPRO_DIR has left, or the repro.py in it."


class NothingToMinify(ArmatureError):
    """The graph does not show what it is to show."""

    code = "A244"
    text = "{path} does not show it: {problem}"
    hint = "Choose what it shows with --kind error, wrong or slow."


def shows(model: nn.Module, inputs: Sequence[object], backend: str, kind: str) -> int:
    """Print what goes wrong. The exit status: 1 if it does, 0 if all is well."""
    said = fault(model, inputs, backend, kind)
    print(said or "all is well")
    return int(bool(said))


def fault(model: nn.Module, inputs: Sequence[object], backend: str, kind: str) -> str:
    """What goes wrong when the model is compiled, "" if nothing does. Errors: those of eager mode."""
    return FAULTS[kind](model, inputs, backend)


def error_of(model: nn.Module, inputs: Sequence[object], backend: str) -> str:
    """The error of compiling it, and of the first call."""
    eager(model, inputs)
    try:
        compiled(model, backend)(*copied(inputs))
    except Exception as error:  # whatever it is, that is what is looked for
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def wrong_values(model: nn.Module, inputs: Sequence[object], backend: str) -> str:
    """How results differ from eager mode's; an error is another fault."""
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
    """The model compiled from nothing, errors coming out."""
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
    """Inputs that may be written to."""
    return copy.deepcopy(list(inputs))


def seconds(run: Callable[..., Any], inputs: Sequence[object]) -> float:
    """Of one call, the middle of some."""
    taken = []
    for _ in range(CALLS):
        given = copied(inputs)
        start = time.perf_counter()
        run(*given)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


@attrs.define(eq=False)
class Minifier:
    """Makes a graph smaller while it shows the fault. tries: graphs that were looked at. told: called after each.

    judge: what looks at a graph, as `fault` does in this process.
    """

    backend: str
    kind: str
    told: Callable[[int, int], None] = lambda tries, nodes: None
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
        except Exception:  # eager mode refuses the smaller graph
            found = ""
        self.told(self.tries, operators(graph))
        # An error of another class is another fault.
        same = found.partition(":")[0] == self.fault.partition(":")[0] if self.kind == "error" else bool(found)
        if not (found and same):
            return False
        self.fault = found
        return True


def operators(graph: fx.GraphModule) -> int:
    """Calls in a graph."""
    return sum(node.op.startswith("call_") for node in graph.graph.nodes)


def candidates(graph: fx.GraphModule, inputs: list[object]) -> Iterator[tuple[fx.GraphModule, list[object]]]:
    """Smaller graphs, those that leave most away first: the end cut off, then parts given as inputs."""
    calls = [node.name for node in graph.graph.nodes if node.op.startswith("call_")]
    values = values_of(graph, inputs)
    step = len(calls) // 2
    while step:
        for begin in range(0, len(calls), step):
            kept = calls[begin : begin + step]
            tensors = [name for name in kept if isinstance(values.get(name), torch.Tensor)]
            if tensors:  # what comes after is left away
                yield rewritten(graph, inputs, values, given=(), result=tensors[-1])
            yield rewritten(graph, inputs, values, given=tensors, result=None)
        step //= 2


def values_of(graph: fx.GraphModule, inputs: list[object]) -> dict[str, object]:
    """What each node gives in eager mode."""
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
    """A copy in which nodes are inputs that have their values, and which returns another node; None: what it did."""
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


def minify(folder: Path, kind: str, told: Callable[[int, int], None], judge: Judge) -> tuple[Path, Minifier, int]:
    """Write the smallest graph of the script in a folder to a folder `minified` in it: its script, tries and size.

    Errors: NoGraphToMinify, NothingToMinify, OSError.
    """
    path = folder / SCRIPT if folder.is_dir() else folder
    try:
        names = runpy.run_path(str(path))
        model, inputs = names["Graph"](), list(names["inputs"]())
    except Exception as error:
        raise NoGraphToMinify(path=path, problem=f"{type(error).__name__}: {error}") from error
    graph = fx.symbolic_trace(model)
    found = Minifier(str(names.get("BACKEND", "auto")), kind, told, judge)
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
