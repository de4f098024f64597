"""`python -m benchmarks.report`: puts the JSON output of the benchmarks and the demo into docs/performance.md."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.frontend import ratio
from benchmarks.run import geometric_mean

HERE = Path(__file__).parent
Rows = list[dict[str, Any]]
BLOCK = re.compile(r"<!-- figures: (\w+) -->\n.*?\n<!-- end -->", re.DOTALL)


def table(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown; numbers are right-aligned."""
    body = [[cell(v) for v in row] for row in rows]
    heads = list(titles)
    right = [all(row[k][:1].isdigit() or row[k] in ("", "-") for row in body) for k in range(len(heads))]
    lines = [heads, ["--:" if r else "---" for r in right], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: object) -> str:
    """A value for people, with three significant digits."""
    if isinstance(value, float):
        if value == 0:
            return "0"
        if abs(value) < 0.001:
            return f"{value:.0e}"
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"
    return str(value)


def of_part(run: Rows, part: str) -> Rows:
    return [row for row in run if row["key"][0] == part]


def seconds(row: dict[str, Any] | None) -> object:
    """The figure of a measurement, or the reason why there is none."""
    if row is None:
        return "-"
    return row.get("seconds", row.get("failed"))


def steady(run: Rows) -> str:
    """Milliseconds per call for each compiler, and the speedup over eager."""
    others = ("torch.compile", "armature")
    rows: list[list[object]] = []
    measured = [row for row in of_part(run, "steady") if "failed" not in row]
    for row in of_part(run, "steady"):
        if "failed" in row:
            rows.append([*row["key"][1:3], row["failed"], "", "", "", ""])
            continue
        times = [row["seconds"][c] * 1e3 for c in ("eager", *others)]
        rows.append([*row["key"][1:3], *times, *(row["speedup"][c] for c in others)])
    means = [geometric_mean([row["speedup"][c] for row in measured]) for c in others]
    rows.append(["**geometric mean**", "", "", "", "", *means])
    titles = [
        "model",
        "mode",
        "eager ms",
        "torch.compile ms",
        "armature ms",
        "torch.compile / eager",
        "armature / eager",
    ]
    return table(titles, rows)


def peak_memory(run: Rows) -> str:
    """MiB at the peak of a call for each compiler, beyond what was allocated before."""
    rows: list[list[object]] = []
    ratios = []
    for row in of_part(run, "memory"):
        if "failed" in row:
            rows.append([*row["key"][1:3], row["failed"], "", "", ""])
            continue
        eager, theirs, ours = (row["bytes"][c] / 2**20 for c in ("eager", "torch.compile", "armature"))
        ratio: object = "-"
        if theirs and ours:
            ratio = ours / theirs
            ratios.append(ours / theirs)
        rows.append([*row["key"][1:3], eager, theirs, ours, ratio])
    rows.append(["**geometric mean**", "", "", "", "", geometric_mean(ratios)])
    return table(["model", "mode", "eager MiB", "torch.compile MiB", "armature MiB", "armature / torch.compile"], rows)


def against(run: Rows, part: str, titles: list[str]) -> str:
    """Seconds of torch.compile and armature for each case of a part, and their ratio if both have one."""
    found = {tuple(row["key"][1:]): row for row in of_part(run, part)}
    rows: list[list[object]] = []
    ratios = []
    for case in dict.fromkeys(key[:-1] for key in found):
        theirs, ours = (seconds(found.get((*case, c))) for c in ("torch.compile", "armature"))
        ratio: object = "-"
        if isinstance(theirs, float) and isinstance(ours, float):
            ratio = ours / theirs
            ratios.append(ours / theirs)
        rows.append([*case, theirs, ours, ratio])
    if part == "cold":
        rows.append(["**geometric mean**", *[""] * (len(titles) + 1), geometric_mean(ratios)])
    return table([*titles, "torch.compile s", "armature s", "armature / torch.compile"], rows)


def overhead(run: Rows) -> str:
    rows = [[row["key"][1], row["bare_us"], row["compiled_us"], row["extra_us"]] for row in of_part(run, "overhead")]
    return table(["compiler", "bare us", "compiled us", "extra us"], rows)


def demo(rows: Rows) -> str:
    """The output of `armature demo --json`."""
    names = ("model", "mode", "graphs", "breaks", "operators", "kernels", "fused", "extern", "error", "compile_s")
    names = (*names, "eager_ms", "armature_ms", "ratio")
    titles = [
        n.replace("extern", "ATen calls").replace("_s", " s").replace(" ms", "ms").replace("_", " ") for n in names
    ]
    mean = geometric_mean([row["ratio"] for row in rows])
    body: list[list[object]] = [[row[n] for n in names] for row in rows]
    return table(titles, [*body, ["**geometric mean**", *[""] * (len(names) - 2), mean]])


def gpu_models(rows: Rows) -> str:
    """The GPU benchmark's models: three compilers, measured alternately."""
    body: list[list[object]] = []
    for row in rows:
        theirs = row["eager_ms"] / row["inductor_ms"]
        body.append(
            [row["model"], row["mode"], row["eager_ms"], row["inductor_ms"], row["armature_ms"], theirs, row["ratio"]]
        )
    means = [geometric_mean([row[k] for row in body]) for k in (5, 6)]  # type: ignore[misc]
    titles = [
        "model",
        "mode",
        "eager ms",
        "torch.compile ms",
        "armature ms",
        "torch.compile / eager",
        "armature / eager",
    ]
    return table(titles, [*body, ["**geometric mean**", "", "", "", "", *means]])


def front_end(rows: Rows) -> str:
    """Graphs, breaks and tracing time of each model of the zoo."""
    body: list[list[object]] = []
    for row in rows:
        name = row["model"].removeprefix("example:")
        if "failed" in row:
            body.append([name, row["mode"], row["failed"], "", "", "", "-"])
            continue
        theirs, ours = row["torch.compile"], row["armature"]
        counts = [f"{r['graphs']} + {r['breaks']}" for r in (theirs, ours)]
        times = [r["seconds"] * 1e3 for r in (theirs, ours)]
        found = ratio(row)
        body.append([name, row["mode"], *counts, *times, "-" if found is None else found])
    mean = geometric_mean([row[-1] for row in body if isinstance(row[-1], float)])
    titles = [
        "model",
        "mode",
        *(f"{c} {what}" for what in ("graphs + breaks", "ms") for c in ("torch.compile", "armature")),
        "ratio",
    ]
    return table(titles, [*body, ["**geometric mean**", *[""] * 5, mean]])


def fill(page: str, figures: Mapping[str, str]) -> str:
    """The page with these figures between their marks. Errors: ValueError if it has no marks for some."""
    missing = figures.keys() - {found[1] for found in BLOCK.finditer(page)}
    if missing:
        raise ValueError(
            f"The page has no marks for {', '.join(sorted(missing))}. Add {mark('NAME', '')!r} where they belong."
        )
    return BLOCK.sub(lambda found: mark(found[1], figures[found[1]]) if found[1] in figures else found[0], page)


def mark(name: str, text: str) -> str:
    """Figures between their marks, which readers of the page do not see."""
    return f"<!-- figures: {name} -->\n{text}\n<!-- end -->"


def of_run(data: dict[str, Any]) -> dict[str, str]:
    """The tables of the parts that were measured."""
    rows = data["rows"]
    tables: dict[str, tuple[str, Callable[[Rows], str]]] = {
        "steady": ("steady", steady),
        "peak_memory": ("memory", peak_memory),
        "cold": ("cold", lambda run: against(run, "cold", ["model", "mode"])),
        "scaling": ("scaling", lambda run: against(run, "scaling", ["graph", "steps"])),
        "overhead": ("overhead", overhead),
    }
    return {name: make(rows) for name, (part, make) in tables.items() if of_part(rows, part)}


def of_gpu(data: dict[str, Any]) -> dict[str, str]:
    kernels = [[r["kernel"], r["armature_gb_s"], r["of_copy"], r.get("eager_gb_s", "-")] for r in data["memory"]]
    return {
        "gpu_models": gpu_models(data["models"]),
        "memory": table(["kernel", "armature GB/s", "of a copy's", "eager GB/s"], kernels),
        "launch": table(["one launch of a tiny kernel", "us"], [[row["launch"], row["us"]] for row in data["launch"]]),
    }


def main(
    run: Annotated[Path | None, typer.Option(help="what `python -m benchmarks.run --json` wrote")] = None,
    demo_file: Annotated[Path | None, typer.Option("--demo", help="what `armature demo --json` wrote on a CPU")] = None,
    cuda: Annotated[Path | None, typer.Option(help="what `armature demo --device cuda --json` wrote")] = None,
    gpu: Annotated[Path | None, typer.Option(help="what plugins/gpu_triton/benchmarks/models.py --json wrote")] = None,
    frontend: Annotated[Path | None, typer.Option(help="what benchmarks.frontend --json wrote")] = None,
    page: Annotated[Path, typer.Option(help="the page")] = HERE.parent / "docs" / "performance.md",
) -> None:
    """Put the figures of these files into the page, and leave all else there as it is."""
    readers: tuple[tuple[Path | None, Callable[[dict[str, Any]], dict[str, str]]], ...] = (
        (run, of_run),
        (demo_file, lambda data: {"demo": demo(data["rows"])}),
        (cuda, lambda data: {"cuda_demo": demo(data["rows"])}),
        (gpu, of_gpu),
        (frontend, lambda data: {"front_end": front_end(data["rows"])}),
    )
    figures: dict[str, str] = {}
    for file, read in readers:
        if file is not None:
            data = json.loads(file.read_text())
            figures |= read(data)
            typer.echo(f"{file}: measured on {data['machine']}; the page should say so")
    page.write_text(fill(page.read_text(), figures))
    typer.echo(f"wrote {page}: {', '.join(figures) or 'nothing, as no file was given'}")


if __name__ == "__main__":
    typer.run(main)
