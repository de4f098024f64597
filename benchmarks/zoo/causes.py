"""Analyses the failures of a row, each with a cause that it may share with others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from benchmarks.zoo.measure import PHASES

Row = dict[str, Any]
OURS = ("capture", "auto")
# Kinds of failures, the worst first; the first three are never acceptable. The last two are the program's own: rounding
# changes its results as much, or it behaves differently if `torch.compiler.is_compiling()`.
KINDS = ("crash", "wrong", "raises", "timeout", "fallback", "more breaks", "layout", "unstable", "asks")
FATAL = ("crash", "wrong", "raises")
OWN = {
    "unstable": "eager mode with weights shaken by 1e-6, or in float64, differs as much",
    "asks": "eager mode differs likewise when torch.compiler.is_compiling() answers yes",
}
NOISE = (
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"(/[\w.+-]+)+/(?=[\w.-]+/[\w.-]+\.py)"), ""),
    (re.compile(r"\b\d+(\.\d+)?(e[+-]?\d+)?\b"), "N"),
    (re.compile(r"\bN(, N)+\b"), "N.."),
    (re.compile(r"\b([a-zA-Z_]+_)N\b"), r"\1N"),
)


@attrs.frozen
class Failure:
    """A failure of one model. `cause` may be shared with others; `detail` is specific."""

    kind: str
    cause: str
    model: str
    where: str  # "infer, auto"
    detail: str = ""


def normalised(text: str, width: int = 220) -> str:
    """A message without addresses, numbers and folders."""
    for pattern, replacement in NOISE:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())[:width]


def model_of(row: Row) -> str:
    """The model's name with its library."""
    return f"{row['library']}/{row['name']}"


def failures(row: Row) -> Iterator[Failure]:
    """All failures of one model."""
    model = model_of(row)
    if ended := row.get("ended"):
        yield from _ended(row, model, ended)
    for phase in PHASES:
        found = row.get(phase, {})
        for way in OURS:
            if way in found:
                yield from _of_way(found[way], model, f"{phase}, {way}")
        yield from _beside_incumbent(found, model, phase)


def _ended(row: Row, model: str, ended: str) -> Iterator[Failure]:
    stage = row.get("stage", "")
    if stage.startswith(("build", "start")) or "eager" in stage or "float64" in stage or "torch.compile" in stage:
        return  # not ours
    if ended.startswith(("stopped", "not started")):
        return
    log = row.get("log", "")
    at = next((line.strip() for line in log.splitlines() if line.strip().startswith("File ")), "")
    kind = "timeout" if ended.startswith("over") else "crash"
    yield Failure(kind, normalised(f"{ended.split(':')[-1]} {at}"), model, stage, log[-1500:])


def _of_way(way: Row, model: str, where: str) -> Iterator[Failure]:
    if "raised" in way:
        kind, cause = ("asks", OWN["asks"]) if way.get("raised as told") else ("raises", normalised(way["raised"]))
        yield Failure(kind, cause, model, where, f"{way['raised']}\n{way.get('raised at', '')}")
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for wrong in way.get("wrong", ()):
        by_kind["layout" if wrong["kind"] == "strides" else "wrong"].append(wrong)
    for kind, found in by_kind.items():
        groups = ", ".join(sorted({f"{one['kind']} of {one['group']}" for one in found}))
        detail = "\n".join(f"{one['group']} {one['path']}: {one['kind']}, {one['detail']}" for one in found)
        yield Failure(kind, f"{where}: {groups}", model, where, detail)
    for kind in ("unstable", "asks"):
        if ones := way.get(kind):
            yield Failure(kind, OWN[kind], model, where, "\n".join(f"{d['path']}: {d['detail']}" for d in ones))
    for text in dict.fromkeys(way.get("fallbacks", ())):
        yield Failure("fallback", normalised(text.partition(": ")[2]), model, where, text)


def breaks_of(theirs: Row) -> int:
    """torch.compile's breaks. It doesn't count the break of a frame that it gives up on (a loop that breaks), although
    the callees become separate graphs. There are at least as many breaks as graphs minus one, also in rows of old runs,
    which don't have the number of such frames."""
    counted = int(theirs.get("break count", 0)) + int(theirs.get("given up", 0))
    return max(counted, len(theirs.get("graphs", ())) - 1)


def _beside_incumbent(found: Row, model: str, phase: str) -> Iterator[Failure]:
    ours, theirs = found.get("capture"), found.get("torch.compile")
    if not ours or not theirs or "raised" in theirs or "raised" in ours:
        return
    more = ours.get("break count", 0) > breaks_of(theirs)
    graphs = len(ours.get("graphs", ())) > len(theirs.get("graphs", ()))
    if not (more or (graphs and len(theirs["graphs"]) == 1 and not breaks_of(theirs))):
        return
    counts = f"{ours['break count']} breaks for {breaks_of(theirs)}, "
    counts += f"{len(ours['graphs'])} graphs for {len(theirs['graphs'])}"
    breaks = ours.get("breaks", ()) or [{"id": "no break", "facts": "", "line": "", "place": ""}]
    for one in breaks:
        place = one["place"].partition("site-packages/")[2] or one["place"]
        yield Failure(
            "more breaks", f"[{one['id']}] {one['line'].strip()}", model, phase, f"{counts}\n{place}\n{one['facts']}"
        )


def grouped(found: Iterable[Failure]) -> list[tuple[str, str, list[Failure]]]:
    """Kind, cause and failures, the worst kind and the most frequent cause first."""
    groups: dict[tuple[str, str], list[Failure]] = defaultdict(list)
    for failure in found:
        groups[failure.kind, failure.cause].append(failure)
    order = sorted(groups.items(), key=lambda item: (KINDS.index(item[0][0]), -len({f.model for f in item[1]})))
    return [(kind, cause, members) for (kind, cause), members in order]


@attrs.frozen
class Summary:
    """Counts over rows. A model counts as run if eager mode ran it."""

    rows: int
    ran: int
    unbuilt: int
    unmeasured: int
    right: int  # of those that ran: no crash, no wrong number, no error
    phases: int  # phases (inference, training) that torch.compile runs
    one_graph_theirs: int
    one_graph_both: int
    more_breaks: int
    fallbacks: int


def summary(rows: Iterable[Row]) -> Summary:
    """The sweep's targets, in numbers."""
    rows = list(rows)
    ran = [row for row in rows if "parameters" in row and row.get("stage") != "build"]
    bad = {f.model for row in ran for f in failures(row) if f.kind in FATAL}
    pairs = [
        (row[phase]["capture"], row[phase]["torch.compile"])
        for row in ran
        for phase in PHASES
        if "raised" not in row.get(phase, {}).get("torch.compile", {"raised": ""})
    ]
    theirs = [(ours, their) for ours, their in pairs if len(their["graphs"]) == 1 and not breaks_of(their)]
    return Summary(
        rows=len(rows),
        ran=len(ran),
        unbuilt=sum("not built" in row for row in rows),
        unmeasured=sum("ended" in row and "parameters" not in row for row in rows),
        right=sum(model_of(row) not in bad for row in ran),
        phases=len(pairs),
        one_graph_theirs=len(theirs),
        one_graph_both=sum(len(ours["graphs"]) == 1 and not ours["break count"] for ours, _ in theirs),
        more_breaks=sum(ours["break count"] > breaks_of(their) for ours, their in pairs),
        fallbacks=sum(any(f.kind == "fallback" for f in failures(row)) for row in ran),
    )
