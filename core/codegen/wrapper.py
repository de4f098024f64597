"""The host side of a compiled graph: a Python function that allocates, launches, calls operators and frees memory
early."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import torch

from armature.codegen.externs import Operators, binding_name, binding_of, may_differ_in_layout
from armature.codegen.origins import place
from armature.codegen.printer import PYTHON_INDEX, Lines
from armature.lower.data import Argument, AsNumber, Buffer, ExternCall, Origin, PassedOn, View
from armature.lower.index import FloorDiv, Index, Mod, Product, Size, Sum, Var, contiguous_strides, numel
from armature.schedule.data import Allocate, KernelPlan, Launch, Release, Segment, Step
from armature.torch_abi.alloc import empty_strided, laid_out, overlaid, reinterpret
from armature.torch_abi.devices import current_index, index_of, on_device


class _Definitions(dict[Var | Size, str]):
    """Maps a size to its name, or to its definition if it is computed."""

    def get(self, key: Var | Size, default: Any = None) -> Any:
        definition = key.definition if isinstance(key, Size) else ""
        return f"({definition})" if definition else default


_PRINTER = attrs.evolve(PYTHON_INDEX, names=_Definitions())


def _tuple(parts: Sequence[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _returned_layouts(plan: KernelPlan) -> dict[str, View]:
    """Buffers that only kernels fill and that are only returned as one view: they can be allocated with that layout."""
    made = {s.buffer for s in plan.steps if isinstance(s, Allocate) and s.reuse is None}
    reused = {s.reuse for s in plan.steps if isinstance(s, Allocate)}
    given = [v for s in plan.steps if isinstance(s, ExternCall) for v in _views((*s.args, *s.kwargs.values()))]
    returned = list(_views(plan.outputs))
    uses = Counter(v.buffer for v in (*given, *returned))
    return {
        v.buffer: v
        for v in returned
        if v.buffer in made and v.buffer not in reused and uses[v.buffer] == 1 and _covers(v, plan.buffers[v.buffer])
    }


def _home(plan: KernelPlan) -> torch.device | None:
    """The device that is the current one while the wrapper runs: the accelerator on which most memory is taken."""
    devices = Counter(plan.buffers[step.buffer].device for step in plan.steps if isinstance(step, Allocate))
    devices.update(launch.kernel.device for launch in plan.steps if isinstance(launch, Launch))
    indexed = Counter({device: count for device, count in devices.items() if index_of(device) is not None})
    return indexed.most_common(1)[0][0] if indexed else None


def _views(values: Iterable[Argument]) -> Iterator[View]:
    for value in values:
        if isinstance(value, View):
            yield value
        elif isinstance(value, tuple):
            yield from _views(value)


def _covers(view: View, buffer: Buffer) -> bool:
    """Whether both are contiguous and have the same elements."""
    dense = all(contiguous_strides(v.shape) == v.strides for v in (view, buffer))
    return dense and view.offset == 0 and numel(view.shape) == numel(buffer.shape)


@attrs.define(eq=False)
class Wrapper:
    """The wrapper's text under construction, and the objects that it names. operators: the plugins' facts about
    them. boxed: whether it takes a list."""

    plan: KernelPlan
    operators: Operators
    boxed: bool = True
    lines: Lines = attrs.field(factory=lambda: Lines(column=88))
    bindings: dict[str, object] = attrs.field(factory=dict)
    reused: frozenset[str] = frozenset()
    # buffers that are allocated with the layout of the view that is returned
    layouts: dict[str, View] = attrs.field(factory=dict)
    returned: frozenset[View] = frozenset()  # those among the outputs
    returned_views: dict[View, str] = attrs.field(factory=dict)  # views that are returned and were also needed earlier
    ending: list[str] = attrs.field(factory=list)  # released, but not yet deleted
    functions: list[str] = attrs.field(factory=list)  # texts of the segments
    home: torch.device | None = None  # the current device while the wrapper runs, if it needs one

    def print(self) -> str:
        """The whole function."""
        plan = self.plan
        self.reused = frozenset(s.reuse for s in plan.steps if isinstance(s, Allocate) and s.reuse is not None)
        self.layouts = _returned_layouts(plan)
        self.returned = frozenset(value for value in plan.outputs if isinstance(value, View))
        self.home = _home(plan)
        self.lines.add(f"# {plan.name}: {len(plan.launches)} kernels")
        given = "args" if self.boxed else ", ".join(plan.inputs)
        with self.lines.indented(f"def call({given}):"):
            if self.home is not None:
                self.at_home(self.home, given)
            if self.boxed and plan.inputs:
                self.lines.add(f"{_tuple(plan.inputs)} = args")
            if self.boxed:
                self.lines.add("args.clear()")
            for size, read in sorted(plan.sizes.items(), key=lambda item: item[0].name):
                self.lines.add(f"{size.name} = {read.text(plan.inputs[read.position])}")
            starts = {segment.span.start: segment for segment in plan.segments}
            number = 0
            while number < len(plan.steps):
                if segment := starts.get(number):
                    self.segment(segment)
                else:
                    self.step(plan.steps[number])
                number = segment.span.stop if segment else number + 1
            if self.boxed:
                self.name_repeated()
            self.lines.add(f"return {_tuple([self.output(o) for o in plan.outputs])}")
        return "\n".join([*self.functions, str(self.lines)])

    def at_home(self, home: torch.device, given: str) -> None:
        """Memory is taken on the current device, which must be that of the tensors."""
        self.bindings |= {"current_index": current_index, "on_device": on_device}
        index = str(index_of(home))
        with self.lines.indented(f"if current_index() != {index}:"):
            self.lines.add(f"return on_device({', '.join(filter(None, (index, 'call', given)))})")

    def segment(self, segment: Segment) -> None:
        """A function of its steps, and its call here."""
        self.delete()
        outer, self.lines = self.lines, Lines(column=88)
        views = set(self.returned_views.values())
        with self.lines.indented(f"def {segment.name}(args):"):
            if segment.inputs:
                self.lines.add(f"{_tuple(segment.inputs)} = args")
            self.lines.add("args.clear()")
            for name in segment.copied:
                self.bindings["copy_of"] = torch.clone
                self.lines.add(f"{name} = copy_of({name})")
            for at in segment.span:
                self.step(self.plan.steps[at])
            self.ending.clear()  # its variables end with it
            made = (*segment.outputs, *(name for name in self.returned_views.values() if name not in views))
            self.lines.add(f"return {_tuple(made)}")
        self.functions.append(str(self.lines))
        self.lines = outer
        self.lines.add(f"given = [{', '.join(segment.inputs)}]")
        if segment.ended:
            self.lines.add(f"del {', '.join(segment.ended)}")
        self.lines.add(f"{_tuple(made)} = {segment.name}(given)" if made else f"{segment.name}(given)")

    def delete(self) -> None:
        """Delete the variables of released buffers."""
        if self.ending:
            self.lines.add(f"del {', '.join(self.ending)}")
            self.ending.clear()

    def step(self, step: Step) -> None:
        """One step of the plan."""
        if isinstance(step, Release):
            if step.buffer not in self.reused:
                self.ending.append(step.buffer)
            return
        self.delete()
        if isinstance(step, Allocate):
            self.allocate(step)
        elif isinstance(step, Launch):
            kernel = step.kernel
            given = [*kernel.reads, *kernel.writes, *map(_PRINTER.print, kernel.sizes)]
            self.lines.add(f"{kernel.name}({', '.join(given)})", self.note(kernel.origins))
        else:
            self.extern(step)

    def allocate(self, step: Allocate) -> None:
        buffer = self.plan.buffers[step.buffer]
        if step.over is not None:
            self.bindings["overlaid"] = overlaid
            layout = self.layouts.get(step.buffer, buffer)
            shape, strides, dtype = self.tuple(layout.shape), self.tuple(layout.strides), self.dtype(buffer.dtype)
            self.lines.add(f"{buffer.name} = overlaid({step.over}, {shape}, {strides}, {dtype})")
            return
        if step.reuse is None:
            away = self.home is not None and buffer.device.type == self.home.type and buffer.device != self.home
            name = f"empty_strided_{buffer.device.type}" + (f"_{buffer.device.index}" if away else "")
            self.bindings[name] = empty_strided(buffer.device, current=not away)
            layout = self.layouts.get(step.buffer, buffer)
            shape, strides, dtype = self.tuple(layout.shape), self.tuple(layout.strides), self.dtype(buffer.dtype)
            self.lines.add(f"{buffer.name} = {name}({shape}, {strides}, {dtype})")
            return
        old = self.plan.buffers[step.reuse]
        if (old.shape, old.strides) == (buffer.shape, buffer.strides):
            self.lines.add(f"{buffer.name} = {old.name}; del {old.name}")
        else:
            view = self.reinterpret(old.name, buffer.shape, buffer.strides, 0)
            self.lines.add(f"{buffer.name} = {view}; del {old.name}")

    def extern(self, call: ExternCall) -> None:
        for view in call.args:
            if isinstance(view, View) and view in self.returned and view not in self.returned_views:
                text = self.view(view)
                if text != view.buffer:
                    self.returned_views[view] = f"{view.buffer}_view_{len(self.returned_views)}"
                    self.lines.add(f"{self.returned_views[view]} = {text}")
        name = binding_name(call.target)
        self.bindings[name] = call.run or binding_of(call.target, self.operators)
        given = [self.argument(a) for a in call.args]
        given += [f"{k}={self.argument(a)}" for k, a in call.kwargs.items()]
        text = f"{name}({', '.join(given)})"
        outputs = [n or "_" for n in call.outputs]
        if any(call.outputs):
            single = len(outputs) == 1 and isinstance(call.target._schema.returns[0].type, torch.TensorType)
            text = f"{outputs[0]} = {text}" if single else f"{_tuple(outputs)} = {text}"
        self.lines.add(text, self.note(call.origins))
        if "_" in outputs and any(call.outputs):
            self.ending.append("_")
        if may_differ_in_layout(call.target, self.operators):
            for made in filter(None, call.outputs):
                self.check_layout(self.plan.buffers[made])

    def check_layout(self, made: Buffer) -> None:
        """Kernels read an operator's result with the layout that lowering assumed: check it. Of an empty one they read
        nothing, and it may be None: an undefined tensor is empty in the operator's fake."""
        if len(made.shape) > 0 and 0 not in made.shape:
            self.bindings["laid_out"] = laid_out
            strides = self.tuple(made.strides)
            with self.lines.indented(f"if {made.name}.stride() != {strides}:"):
                self.lines.add(f"{made.name} = laid_out({made.name}, {strides})")

    def note(self, origins: Iterable[Origin]) -> str:
        """The user's first and last line that the step implements."""
        places = list(dict.fromkeys(place(o) for o in origins if o.file))
        return places[0] if len(places) == 1 else " .. ".join((places[0], places[-1])) if places else ""

    def tuple(self, values: Sequence[Index]) -> str:
        """A tuple of numbers."""
        return _tuple([_PRINTER.print(v) for v in values])

    def dtype(self, dtype: torch.dtype) -> str:
        name = str(dtype).removeprefix("torch.")
        self.bindings[name] = dtype
        return name

    def view(self, view: View) -> str:
        """The buffer's own name, or a view of it."""
        if view in self.returned_views:
            return self.returned_views[view]
        buffer: Buffer | View = self.layouts.get(view.buffer) or self.plan.buffers[view.buffer]
        same = view.shape == buffer.shape and view.offset == 0
        free = 1 if view not in self.returned else None  # sizes along which operators accept any stride
        if same and all(a == b or n == free for a, b, n in zip(view.strides, buffer.strides, view.shape, strict=True)):
            return view.buffer
        return self.reinterpret(view.buffer, view.shape, view.strides, view.offset)

    def name_repeated(self) -> None:
        """Make each view that a backward graph returns several times once. Autograd copies a gradient that is to be
        stored in several leaves if it is one tensor; it can't know that two tensors share their memory."""
        views = Counter(value for value in self.plan.outputs if isinstance(value, View))
        for view, count in views.items():
            text = self.view(view)
            if count > 1 and text != view.buffer and view not in self.returned_views:
                self.returned_views[view] = f"{view.buffer}_view_{len(self.returned_views)}"
                self.lines.add(f"{self.returned_views[view]} = {text}")

    def output(self, value: Argument) -> str:
        """An output of the graph; a tensor that is returned twice becomes two tensors, except among gradients."""
        text = self.argument(value)
        if isinstance(value, View) and not self.boxed:
            self.returned_views.pop(value, None)
        return text

    def reinterpret(self, name: str, shape: Sequence[Index], strides: Sequence[Index], offset: Index) -> str:
        self.bindings["reinterpret"] = reinterpret
        return f"reinterpret({name}, {self.tuple(shape)}, {self.tuple(strides)}, {_PRINTER.print(offset)})"

    def argument(self, value: Argument) -> str:
        """An argument of an operator, or an output of the graph, as Python text."""
        return next((text(self, value) for kinds, text in _ARGUMENTS if isinstance(value, kinds)), None) or repr(value)

    def items(self, values: Sequence[Argument]) -> str:
        return f"[{', '.join(self.argument(v) for v in values)}]"

    def complex_number(self, value: complex) -> str:
        """A call: as a sum of its parts it would lose the sign of a zero."""
        return f"complex({self.argument(value.real)}, {self.argument(value.imag)})"

    def constant(self, value: object) -> str:
        """A name for an object of torch."""
        name = "".join(c if c.isalnum() else "_" for c in f"{type(value).__name__}_{value}")
        self.bindings[name] = value
        return name


def _float(wrapper: Wrapper, value: float) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'


# How arguments are written, by their types; those of other types by their `repr`.
_ARGUMENTS: tuple[tuple[Any, Callable[[Wrapper, Any], str]], ...] = (
    (AsNumber, lambda wrapper, value: f"{value.buffer}.item()"),
    (View, Wrapper.view),
    (PassedOn, lambda wrapper, value: str(value.name)),
    (tuple, Wrapper.items),
    ((Var, Size, Sum, Product, FloorDiv, Mod), lambda wrapper, value: _PRINTER.print(value)),
    (torch.dtype, Wrapper.dtype),
    (float, _float),
    (complex, Wrapper.complex_number),
    ((torch.device, torch.layout, torch.memory_format), Wrapper.constant),
)
