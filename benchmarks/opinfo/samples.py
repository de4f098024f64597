"""One operator with one dtype: each of its samples eagerly and compiled, in a process of its own."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import attrs
import torch
from torch import fx
from torch.testing._internal import common_methods_invocations as methods

import armature
from armature.breaks.events import explanation
from armature.events import EventKind
from armature.lower.data import ExternCall
from armature.pipeline.session import Outcome, session
from armature.run.data import CompiledGraph
from armature.torch_abi.views import share_memory
from benchmarks.opinfo.compare import fresh, in_double, tensors, with_weights, wrong
from benchmarks.opinfo.incumbent import Left, left_by_torch_compile

MODES = ("forward", "backward")
# Uninitialised memory: only the form of the result can be compared.
UNSET = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))
# Breaks that no compiler can avoid: the next step, or the size of a result, depends on the values in a tensor.
NEEDS_NUMBERS = frozenset((
    "data-dependent-branch",
    "data-dependent-operator",
    "dynamic-shape-operator",
    "tensor-item",
    "tensor-to-list",
    "number-of-tensor",
    "range-of-tensor",
    "function-of-numbers",
    "tensor-contains",
    "tensor-of-tensors",
    "compares-tensors",
    "text-of-tensor",
))  # fmt: skip
MEMORY = ("aten.empty", "aten.new_empty")  # operators that compute nothing, which torch.compile counts as no calls
KEPT = 12  # problems of one operator that are recorded
Row = dict[str, Any]
op_db = methods.op_db


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


# The table seeds and restores generators around operators that draw numbers; `run` sets the seed itself.
methods.wrapper_set_seed = _unseeded


@attrs.frozen
class Settings:
    """What to run for each operator. samples: the number for each, spread over all of them; 0: all. beside: whether
    torch.compile's loops and calls are counted too."""

    device: str = "cpu"
    modes: tuple[str, ...] = MODES
    samples: int = 0
    backend: str = "auto"
    beside: bool = False


@attrs.define
class Beside:
    """The samples of an operator that became loops alone, and the calls that were left, here and by torch.compile.
    only_here: calls that torch.compile has loops for."""

    lowered: Counter[str] = attrs.Factory(Counter)
    calls: Counter[str] = attrs.Factory(Counter)
    only_here: Counter[str] = attrs.Factory(Counter)

    def add(self, mine: Left, theirs: Left) -> None:
        """Count a sample."""
        self.lowered["samples"] += 1
        self.lowered["armature"] += mine.lowered
        self.lowered["torch.compile"] += theirs.lowered
        self.lowered["both"] += mine.lowered and theirs.lowered
        self.calls.update(theirs.calls)
        if theirs.whole and theirs.calls.total() < mine.calls.total():
            self.only_here.update(name for name in mine.calls if name.partition("; ")[0] not in theirs.calls)


@attrs.frozen
class Seen:
    """The outcome of a run: its result, the gradients of its inputs, the inputs afterwards; or its error."""

    result: Any = None
    gradients: Any = None
    inputs: Any = None
    error: Exception | None = None

    @property
    def all(self) -> tuple[Any, Any, Any]:
        return self.result, self.gradients, self.inputs


def operators(dtype: torch.dtype, device: str) -> list[str]:
    """Names of the operators that have samples of a dtype on a device."""
    kind = torch.device(device).type
    return [name_of(op) for op in op_db if dtype in op.supported_dtypes(kind)]


def name_of(op: Any) -> str:
    """The operator's name with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def measure(dtypes: str, name: str, settings: Settings, report: Callable[[Row], None]) -> None:
    """Run the samples of an operator in each of its dtypes; `report` is told after each sample, so that a crash loses
    no more than one dtype. "parts" of the row: a row per dtype."""
    found: dict[str, Row] = {}
    for dtype in dtypes.split(","):

        def report_part(row: Row) -> None:
            found[row["library"]] = row
            report({"library": dtypes, "name": name, "parts": [*found.values()]})

        measure_dtype(dtype, name, settings, report_part)


def parts(row: Row) -> list[Row]:
    """A row per dtype; the last one says how the process ended, if it did not end normally."""
    found = [dict(part) for part in row.get("parts", ())]
    if "ended" not in row:
        return found
    ending = {key: row[key] for key in ("ended", "log") if key in row}
    first = str(row["library"]).split(",")[len(found) - 1 if found else 0]
    return [*found[:-1], (found[-1] if found else {"library": first, "name": row["name"]}) | ending]


def measure_dtype(dtype_name: str, name: str, settings: Settings, report: Callable[[Row], None]) -> None:
    """Run the samples of an operator in one dtype."""
    dtype, device_type = getattr(torch, dtype_name), torch.device(settings.device).type
    op = next(op for op in op_db if name_of(op) == name)
    row: Row = {"library": dtype_name, "name": name, "modes": {}, "problems": [], "calls": {}}
    calls: Counter[str] = Counter()
    for mode in settings.modes:
        counts: Counter[str] = Counter()
        beside = Beside()
        row["modes"][mode] = counts
        if mode == "backward" and not (op.supports_autograd and dtype in op.supported_backward_dtypes(device_type)):
            continue
        for number, sample in samples_of(op, dtype, mode, settings):
            row["running"] = f"{mode}, sample {number}"
            report(row | {"calls": dict(calls)})
            kinds, detail = one(op, sample, mode, settings, calls, beside)
            counts.update(kinds)
            if beside.lowered:
                row.setdefault("beside", {})[mode] = attrs.asdict(beside)
            told = {"mode": mode, "sample": number, "kinds": kinds, "detail": detail, "arguments": _short(sample)}
            if detail and sum(p["kinds"] == kinds and p["mode"] == mode for p in row["problems"]) < KEPT:
                row["problems"].append(told)
    row.pop("running", None)
    report(row | {"calls": dict(calls)})


def samples_of(op: Any, dtype: torch.dtype, mode: str, settings: Settings) -> Iterator[tuple[int, Any]]:
    """The samples with their numbers; a number of them, spread evenly, if the settings limit them."""
    torch.manual_seed(0)
    every = op.sample_inputs(settings.device, dtype, requires_grad=mode == "backward")
    if not settings.samples:
        return enumerate(every)
    found = list(enumerate(islice(every, 1000)))
    count = min(settings.samples, len(found))
    return (found[(2 * k + 1) * len(found) // (2 * count)] for k in range(count))


def one(
    op: Any, sample: Any, mode: str, settings: Settings, calls: Counter[str], beside: Beside | None = None
) -> tuple[list[str], str]:
    """How a sample was compiled, whether it is right, and a remark. beside: counts it with torch.compile's."""
    function, given = op.op, (sample.input, sample.args, sample.kwargs)
    backward = mode == "backward"

    def program(first: Any, args: Any, kwargs: Any) -> Any:
        return function(first, *args, **kwargs)

    eager = run(program, given, backward)
    if eager.error is not None:
        return ["eager raises"], ""
    if backward and eager.gradients is None:
        return ["no gradients"], ""
    armature.reset()
    found = run(armature.compile(program, backend=settings.backend), given, backward)
    how, why = compilation(calls)
    if settings.beside and beside is not None and how not in ("no graph", "needs numbers"):
        mine = left_here(how)
        try:
            theirs = left_by_torch_compile(lambda compiler: run(compiler(program), given, backward))
        except Exception:  # what torch.compile refuses it lowers to nothing
            theirs = Left(False, 0, Counter())
        beside.add(mine, theirs)
    if found.error is not None:
        return [how, "raises"], f"{type(found.error).__name__}: {str(found.error).strip()[:400]}"
    gap = wrong(found.all, eager.all, lambda: run(program, in_double(given), backward).all)
    if not gap:
        return [how, "right"], why
    if op.name in UNSET or varies(program, given, backward, eager):
        same_kind = [(t.shape, t.dtype, t.stride()) for t in tensors(found.all)]
        if same_kind == [(t.shape, t.dtype, t.stride()) for t in tensors(eager.all)]:
            return [how, "random"], why
    return [how, "wrong"], f"{gap}; {why}" if why else gap


def run(program: Callable[..., Any], given: Any, backward: bool, seed: int = 0) -> Seen:
    """Run on copies of the arguments, from a seed, with a backward pass through the results."""
    copies = fresh(given)
    torch.manual_seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = program(*copies)
            learning = [t for t in tensors(copies) if t.requires_grad]
            outputs, weights = with_weights(result) if backward else ([], [])
            gradients = None
            if outputs and learning:
                gradients = list(torch.autograd.grad(outputs, learning, weights, allow_unused=True))
    except Exception as error:
        return Seen(error=error)
    return Seen(result, gradients, [t.detach() for t in tensors(copies)])


def varies(program: Callable[..., Any], given: Any, backward: bool, eager: Seen) -> bool:
    """Whether eager mode's numbers depend on the seed, or vary from call to call."""
    again = run(program, given, backward, seed=1)
    return again.error is None and bool(wrong(again.all, eager.all, lambda: None))


def compilation(calls: Counter[str]) -> tuple[str, str]:
    """How the last program was compiled, or why it was not."""
    records = session().compilations
    for record in records:
        for graph in record.graphs:
            calls.update(_left_as_calls(graph))
        failed = [e.detail for e in record.events if e.kind is EventKind.FALLBACK and e.detail.startswith("backward")]
        if record.outcome is Outcome.FALLBACK or failed:
            return "fell back", record.reason or failed[0]
    for record in records:
        if record.breaks:
            event = record.breaks[0]
            how = "needs numbers" if event.type.id in NEEDS_NUMBERS else "broke"
            return how, f"{event.type.id}: {explanation(event)}"[:300]
    if any(record.graphs for record in records):
        return "compiled", ""
    captured = [record.module for record in records if record.module is not None]
    if captured and all(map(makes_views_alone, captured)):
        return "no graph", "the graph computes nothing: it makes views of its inputs"
    if captured:
        return "not lowered", "the graph runs operator by operator"
    looked_at = [f"{record.function}: {record.outcome.value} {record.reason}" for record in records]
    skips = [f"{skip.function}: {skip.reason}" for skip in session().skips]
    return "no graph", "; ".join((*looked_at, *skips))[:300] or "no frame was looked at"


def left_here(how: str) -> Left:
    """What the last program became."""
    graphs = [graph for record in session().compilations for graph in record.graphs]
    left = Counter(name for graph in graphs for name in _left_as_calls(graph) if not name.startswith(MEMORY))
    return Left(how == "compiled", sum(len(graph.plan.launches) for graph in graphs), left)


def makes_views_alone(module: fx.GraphModule) -> bool:
    """Whether everything that a captured graph makes is in the memory of its inputs."""
    values = {node: node.meta.get("example_value") for node in module.graph.nodes}
    given = [v for node, v in values.items() if node.op == "placeholder" and isinstance(v, torch.Tensor)]
    made = [v for node, v in values.items() if node.op.startswith("call_")]
    return all(isinstance(v, torch.Tensor) and any(share_memory(v, other) for other in given) for v in made)


def _left_as_calls(graph: CompiledGraph) -> Iterator[str]:
    """The operators of a compiled graph that remain calls, each with the reason."""
    return (f"{step.target}; {step.reason.text}" for step in graph.plan.steps if isinstance(step, ExternCall))


def _short(sample: Any) -> str:
    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(text, value))}]"
        return repr(value)[:60]

    named = [f"{key}={text(value)}" for key, value in sample.kwargs.items()]
    return ", ".join([text(sample.input), *map(text, sample.args), *named])[:300]
