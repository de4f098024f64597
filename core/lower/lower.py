"""ATen graph to loop graph, node by node: each operator becomes a loop, a change of coordinates, or an unchanged call.

Nothing is inlined here, so time and result are linear in the graph; fusion is the scheduler's job.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import attrs
import torch
from torch import fx

from armature import interrupts
from armature.errors import LoweringError, PluginLoweringFailed, invariant
from armature.graph.data import AtenGraph, Lowering
from armature.graph.facts import Operator, Rows, may_write
from armature.graph.numbers import COMPUTED, TAKES_NUMBER
from armature.lower import index as ix
from armature.lower import layout, symints
from armature.lower.builder import Builder
from armature.lower.data import Buffer, BufferKind, CallInstead, LoopGraph, Origin, PassedOn, Reading, View
from armature.lower.extern import as_number, as_view, call_extern
from armature.lower.index import Index, Size, Sum
from armature.lower.reasons import NotSupported, Reason, reason_for
from armature.lower.registry import takes
from armature.lower.sharing import shared_memory
from armature.lower.values import ScalarValue, Spec, TensorValue
from armature.lower.written_back import is_written_back
from armature.torch_abi.fake import NUMBER, detached
from armature.torch_abi.memory import HOST
from armature.torch_abi.symbols import is_unbacked
from armature.torch_abi.views import share_memory
from armature.torch_abi.wrappers import is_part_placeholder

if TYPE_CHECKING:
    from armature.context import CompileContext

Output = View | Index | bool | float | None


def lower(aten: AtenGraph, ctx: CompileContext) -> LoopGraph:
    """Loops for a functional graph. Errors: LoweringError naming the operator and the user's line."""
    return _Lowering(aten, ctx).run()


def spec_of(fake: object) -> Spec | None:
    """The layout of a fake tensor; None for other values. Errors: LoweringError if the tensor is not strided."""
    if not isinstance(fake, torch.Tensor):
        return None
    if fake.layout is not torch.strided or fake.is_quantized:
        raise LoweringError(op=str(fake.layout), message="only strided tensors can be lowered")
    shape = tuple(symints.to_index(s) for s in fake.shape)
    return Spec(shape, fake.dtype, fake.device, tuple(symints.to_index(s) for s in fake.stride()))


@attrs.define(eq=False)
class _Lowering:
    """One walk over one graph: `values` holds the result of each node."""

    aten: AtenGraph
    ctx: CompileContext
    values: dict[fx.Node, Any] = attrs.field(factory=dict)
    inputs: list[str] = attrs.field(factory=list)
    constants: dict[str, torch.Tensor] = attrs.field(factory=dict)
    sizes: dict[Size, Reading] = attrs.field(factory=dict)
    # sizes of inputs that are computed from others, and strides
    unread: list[tuple[Index, Reading]] = attrs.field(factory=list)
    builder: Builder = attrs.field(init=False)
    mutations: list[fx.Node] = attrs.field(factory=list)
    copies: dict[str, str] = attrs.field(factory=dict)  # copies of constants that the graph returns

    def __attrs_post_init__(self) -> None:
        self.builder = Builder(self.ctx)

    def run(self) -> LoopGraph:
        """Each node in its order, as loops or as a call."""
        graph = self.aten.module.graph
        self.mutations = [n for n in graph.nodes if n.target is torch.ops.aten.copy_.default]
        visit = {
            "placeholder": self.placeholder,
            "get_attr": self.constant,
            "call_function": self.call,
        }
        result: fx.Node | None = None
        for node in graph.nodes:
            interrupts.check()
            if node.op == "output":
                result = node
            elif node.op in visit:
                visit[node.op](node)
            else:
                raise LoweringError(op=str(node.target), message=f"a {node.op} node in an ATen graph")
        invariant(result is not None, "the graph has no output", graph=self.aten.name)
        self._solve_sizes()
        self._check_sizes()
        outputs = self.outputs(cast(fx.Node, result))
        b = self.builder
        # A recording is made for fixed addresses, which it may share with other recordings.
        lent = frozenset() if self.ctx.config.record_launches else self.aten.spare_inputs
        spare = frozenset(self.inputs[k] for k in lent).intersection(b.buffers)
        places = self.aten.static_inputs
        if self.aten.spare_inputs:
            places = frozenset(range(len(self.inputs))).difference(self.aten.spare_inputs, *self.aten.shared_inputs)
        return LoopGraph(
            name=self.aten.name,
            inputs=tuple(self.inputs),
            constants=self.constants,
            buffers=b.buffers,
            nodes=tuple(b.nodes),
            outputs=outputs,
            sizes=self.sizes,
            spare=spare,
            lasting=frozenset(self.inputs[k] for k in places),
            shared_inputs=tuple(frozenset(self.inputs[k] for k in group) for group in self.aten.shared_inputs),
        )

    # -- leaves

    def placeholder(self, node: fx.Node) -> None:
        position = len(self.inputs)
        fake = self.aten.fake_inputs[position]
        name = self.builder.fresh(node.name)
        self.inputs.append(name)
        if isinstance(fake, torch.SymInt):
            self._read_size(fake, Reading(position, -1))
            self.values[node] = symints.to_index(fake)
            return
        spec = spec_of(fake)
        if isinstance(fake, torch.SymFloat):
            self.values[node] = self._of_number(node, PassedOn(name))
            return
        if spec is None:
            self.values[node] = PassedOn(name) if is_part_placeholder(fake) else fake
            return
        tensor = cast(torch.Tensor, fake)
        for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
            self._read_size(size, Reading(position, axis))
            if isinstance(stride, torch.SymInt):
                self.unread.append((symints.to_index(stride), Reading(position, axis, stride=True)))
        self._add_buffer(node, name, spec, BufferKind.INPUT)

    def constant(self, node: fx.Node) -> None:
        value = self.aten.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            raise LoweringError(op=str(node.target), message=f"an attribute of type {type(value).__name__}")
        name = self.builder.fresh(node.name)
        # AOTAutograd lowers under a mode that only accepts fake tensors, so avoid calling an operator.
        self.constants[name] = detached(value) if value.requires_grad else value
        spec = Spec(tuple(value.shape), value.dtype, value.device, tuple(value.stride()))
        self._add_buffer(node, name, spec, BufferKind.CONSTANT)

    def _add_buffer(self, node: fx.Node, name: str, spec: Spec, kind: BufferKind) -> None:
        self.builder.buffers[name] = Buffer(name, spec.dtype, spec.device, spec.shape, spec.strides, kind)
        self.values[node] = self.builder.whole(name)

    def _read_size(self, value: object, read: Reading) -> None:
        found = symints.to_index(value) if isinstance(value, torch.SymInt) else 0
        if isinstance(found, Size) and not found.definition:
            self.sizes.setdefault(found, read)
        elif isinstance(found, Sum):
            self.unread.append((found, read))

    def _solve_sizes(self) -> None:
        """Solve for symbols that are no input's size by themselves: from sizes such as `2*s0 + 1`, and from strides.
        These come last: along axes of size 1, a saved tensor may have another stride than its fake."""
        for found, read in sorted(self.unread, key=lambda pair: pair[1].stride):
            if isinstance(found, Size) and not found.definition:
                self.sizes.setdefault(found, read)
            elif isinstance(found, Sum) and len(found.terms) == 1:
                ((factor, coefficient),) = found.terms
                if isinstance(factor, Size) and not factor.definition and factor not in self.sizes:
                    self.sizes[factor] = attrs.evolve(read, offset=found.const, factor=coefficient)

    def _check_sizes(self) -> None:
        """Errors: LoweringError for a buffer with a size or stride from which nothing tells one of its symbols."""
        for buffer in self.builder.buffers.values():
            for number in (*buffer.shape, *buffer.strides):
                for size in () if isinstance(number, int) else ix.sizes(number) - self.sizes.keys():
                    if not size.definition:
                        raise LoweringError(op=buffer.name, message=f"no input gives the number {size} of its layout")

    # -- floats

    def scalar(self, node: fx.Node, value: torch.SymFloat) -> ScalarValue | None:
        """A float that is only known when the graph runs: read from a tensor, or computed from others or from sizes."""
        args = [self.values[given] if isinstance(given, fx.Node) else given for given in node.args]
        if node.target is NUMBER and is_scalar(args[0]):
            return ScalarValue(args[0])
        if node.target in COMPUTED and any(isinstance(given, ScalarValue) for given in args):
            target = COMPUTED[node.target]
            return self._stored(node, target, [self._operand(node, target, one) for one in args], {})
        if any(isinstance(user.target, torch._ops.OpOverload) or _is_unknown(user) for user in node.users):
            return self._of_number(node, symints.derived(value))
        return None

    def _of_number(self, node: fx.Node, number: object) -> ScalarValue:
        """A number that the host has."""
        options: dict[str, object] = {"dtype": torch.float64, "device": HOST}
        return self._stored(node, torch.ops.aten.scalar_tensor.default, [number], options)

    def _operand(self, node: fx.Node, target: torch._ops.OpOverload, operand: object) -> object:
        """An operand of arithmetic on numbers: a tensor, or a number if the operator may be called with one."""
        if isinstance(operand, ScalarValue):
            return operand.tensor
        return operand if target in TAKES_NUMBER else self._of_number(node, operand).tensor

    def _stored(
        self, node: fx.Node, target: torch._ops.OpOverload, args: list[Any], options: dict[str, object]
    ) -> ScalarValue:
        spec = Spec((), torch.float64, HOST, ())
        self.builder.begin(node.name, target, [spec], node.meta.get("origin"))
        made = call_extern(self.builder, target, args, options, [spec], Reason("number"))[0]
        return ScalarValue(cast(TensorValue, made))

    # -- operators

    def call(self, node: fx.Node) -> None:
        target = node.target
        fake = node.meta.get("val")
        if target is operator.getitem:
            self.values[node] = self.values[cast(fx.Node, node.args[0])][node.args[1]]
        elif isinstance(fake, (torch.SymInt, int)) and not isinstance(fake, bool):
            self.values[node] = symints.to_index(fake)
        elif isinstance(fake, torch.SymFloat):
            self.values[node] = self.scalar(node, fake)
        elif isinstance(target, torch._ops.OpOverload):
            try:
                self._operator(node, target, fake)
            except LoweringError:
                raise
            except Exception as error:
                message = f"{type(error).__name__}: {error}"
                raise LoweringError(op=str(target), message=message, where=_where(node)) from error
        else:
            raise LoweringError(op=str(target), message="it is no ATen operator", where=_where(node))

    def _operator(self, node: fx.Node, target: torch._ops.OpOverload, fake: object) -> None:
        if self.mutations and node is self.mutations[0]:
            self._save_before_mutation()
        several = isinstance(fake, (list, tuple))
        specs = list(map(spec_of, fake)) if isinstance(fake, (list, tuple)) else [spec_of(fake)]
        args = fx.map_arg(node.args, lambda n: self.values[n])
        kwargs = fx.map_arg(node.kwargs, lambda n: self.values[n])
        origin = node.meta.get("origin") or Origin(str(target))
        used = _used_results(node, len(specs)) if several else [True]
        back = bool(self.mutations) and is_written_back(node, self.ctx.operators)
        self.builder.begin(node.name, target, specs, origin, used, tuple(node.users), back, node.all_input_nodes)
        given = (cast("Sequence[object]", args), cast("dict[str, object]", kwargs))
        results = self._try_lowerings(target, *given, specs, _where(node))
        wanted = [spec if read else None for spec, read in zip(specs, used, strict=True)]
        if isinstance(results, Reason) and _computes_nothing(target, wanted, self.ctx.operators):
            b = self.builder
            results = tuple(None if spec is None else b.whole(b.new_buffer(spec)) for spec in wanted)
        if isinstance(results, (CallInstead, Reason)):
            reason, run = _of_call(target, results)
            row = self.ctx.operators.get(target)
            view = row is not None and row.may_return_view
            workspace = _workspace(row, node, fake) if run is None else 0
            results = call_extern(self.builder, target, *given, specs, reason, used, run, view, workspace)
        self.values[node] = tuple(results) if several else results[0]

    def _try_lowerings(
        self,
        target: torch._ops.OpOverload,
        args: Sequence[object],
        kwargs: dict[str, object],
        specs: Sequence[Spec | None],
        where: str = "",
    ) -> tuple[TensorValue | None, ...] | CallInstead | Reason:
        """The results of the first lowering that takes the arguments, or why there are no loops.

        Errors: in strict mode PluginLoweringFailed, if a lowering raises or gives another result than its operator.
        """
        # A decomposition that is still there has declined.
        tried = Reason("arguments") if target in self.ctx.tables.decompositions else None
        for row in self.ctx.tables.lowering_chain(target):
            try:
                with self.builder.attempt():
                    return self._tried(row, args, kwargs, specs)
            except NotSupported as missing:
                tried = missing.reason
            except LoweringError:
                raise
            except Exception as error:
                message, plugin = f"{type(error).__name__}: {error}", self.ctx.tables.owner_of_lowering(row)
                if self.ctx.config.strict:
                    raise PluginLoweringFailed(op=str(target), plugin=plugin, message=message, where=where) from error
                return Reason("failed", f"{plugin}: {message}")
        return reason_for(target, self.ctx.operators, tried)

    def _tried(
        self, row: Lowering, args: Sequence[object], kwargs: dict[str, object], specs: Sequence[Spec | None]
    ) -> tuple[TensorValue | None, ...] | CallInstead:
        """The results of one lowering. Errors: NotSupported, if it declines; TypeError, if they are not the
        operator's."""
        if not takes(row.fn, args, kwargs):
            raise NotSupported("a number among the arguments", "changing")
        found = row.fn(self.builder, *args, **kwargs)
        if found is None:
            raise NotSupported("")
        if isinstance(found, CallInstead):
            return found
        results = tuple(found) if isinstance(found, (list, tuple)) else (found,)
        if len(results) != len(specs):
            raise TypeError(f"it gives {len(results)} results, not {len(specs)}")
        return tuple(itertools.starmap(_as_specified, zip(results, specs, strict=True)))

    def _save_before_mutation(self) -> None:
        """Copy views of written inputs that are read after the first write, so that the readers see the old values."""
        memory = shared_memory(self.builder.nodes)
        buffers = [self.values[cast(fx.Node, n.args[0])].buffer for n in self.mutations]
        written = {memory.get(name, name) for name in buffers}
        for node in self.mutations:
            source = cast(fx.Node, node.args[1])
            value = self.values.get(source)
            same = isinstance(value, TensorValue) and self.builder.is_whole(value) and source is node.args[0]
            if isinstance(value, TensorValue) and memory.get(value.buffer, value.buffer) in written and not same:
                self.builder.begin(source.name, torch.ops.aten.clone.default, [value.spec], node.meta.get("origin"))
                self.values[source] = self.builder.realize(value)

    # -- outputs

    def outputs(self, node: fx.Node) -> tuple[Output, ...]:
        result = node.args[0]
        items = result if isinstance(result, (list, tuple)) else (result,)
        out: list[Output] = []
        for item in items:
            value = self.values[item] if isinstance(item, fx.Node) else item
            if isinstance(value, ScalarValue):
                out.append(as_number(value))
            elif isinstance(value, TensorValue):
                name = item.name if isinstance(item, fx.Node) else "output"
                self.builder.begin(name, torch.ops.aten.clone.default, [value.spec], None)
                lies = self._as_it_lies(item, value) if isinstance(item, fx.Node) else None
                out.append(self._output_view(value) if lies is None else self._as_result(lies))
            else:
                out.append(cast(Output, value))
        return tuple(out)

    def _as_it_lies(self, node: fx.Node, value: TensorValue) -> View | None:
        """A result that shares memory, with the strides of its fake tensor. With symbolic sizes, index expressions
        don't show the strides of a reshape."""
        buffers = self.builder.buffers
        if layout.strided_view(value, buffers) is not None:
            return None
        fake = node.meta["val"]
        for other in self.aten.module.graph.nodes:
            owner, known = self.values.get(other), other.meta.get("val")
            if not isinstance(owner, TensorValue) or owner.buffer != value.buffer or not self.builder.is_whole(owner):
                continue
            same = layout.same_strides(owner.shape, owner.strides, buffers[owner.buffer].strides)
            if same and known.dtype == fake.dtype and share_memory(known, fake):
                start = symints.to_index(fake.storage_offset() - known.storage_offset())
                return View(value.buffer, value.shape, value.strides, start)
        return None

    def _output_view(self, value: TensorValue) -> View:
        return self._as_result(as_view(self.builder, value))

    def _as_result(self, view: View) -> View:
        buffer = self.builder.buffers[view.buffer]
        # the caller may write to the result; the next call needs the constant unchanged
        if buffer.kind is BufferKind.CONSTANT:
            view = attrs.evolve(view, buffer=self._copy_of_constant(view.buffer))
            buffer = self.builder.buffers[view.buffer]
        if buffer.kind is BufferKind.TEMP:
            self.builder.buffers[view.buffer] = attrs.evolve(buffer, kind=BufferKind.OUTPUT)
        return view

    def _copy_of_constant(self, name: str) -> str:
        """The single buffer that the graph returns for a constant."""
        if name not in self.copies:
            target, whole = torch.ops.aten.clone.default, self.builder.whole(name)
            self.builder.begin(name, target, [whole.spec], None)
            results = self._try_lowerings(target, (whole,), {}, [whole.spec])
            if isinstance(results, (CallInstead, Reason)):
                results = call_extern(self.builder, target, (whole,), {}, [whole.spec], _of_call(target, results)[0])
            self.copies[name] = cast(TensorValue, results[0]).buffer
        return self.copies[name]


def _as_specified(value: object, spec: Spec | None) -> TensorValue | None:
    """A lowering's result with the strides of the operator's. Errors: TypeError, if it is another."""
    if value is None or spec is None:
        return None
    if not isinstance(value, TensorValue):
        raise TypeError(f"it gives an object of type {type(value).__name__}, no tensor")
    if value.shape != spec.shape or value.dtype != spec.dtype:
        given, wanted = (f"{one.dtype}[{', '.join(map(str, one.shape))}]" for one in (value, spec))
        raise TypeError(f"it gives {given}, not {wanted}")
    return attrs.evolve(value, strides=spec.strides)


def _of_call(target: torch._ops.OpOverload, found: CallInstead | Reason) -> tuple[Reason, Callable[..., object] | None]:
    """Why a call is no loop, and what is called in the operator's place, if anything is."""
    if isinstance(found, Reason):
        return found, None
    random = torch.Tag.nondeterministic_seeded in target.tags
    return Reason("random" if random else "function", found.reason), found.run


def _workspace(row: Operator | None, node: fx.Node, result: object) -> int:
    """Bytes that the operator takes while it runs."""
    if row is None or row.workspace is None:
        return 0
    return row.workspace(fx.map_arg(node.args, lambda n: n.meta["val"]), result)


def _computes_nothing(target: torch._ops.OpOverload, specs: Sequence[Spec | None], rows: Rows) -> bool:
    """Whether all results that are read are new tensors without elements. An operator of another library, or one that
    draws random numbers or writes, may have other effects."""
    plain = target.namespace == "aten" and torch.Tag.nondeterministic_seeded not in target.tags
    new = not may_write(target, rows) and all(result.alias_info is None for result in target._schema.returns)
    read = [spec for spec in specs if spec is not None]
    return plain and new and bool(read) and all(0 in spec.shape for spec in read)


def is_scalar(value: object) -> TypeGuard[TensorValue]:
    """Whether it is a tensor in which a float of the program is passed."""
    return isinstance(value, TensorValue) and (value.shape, value.dtype, value.device) == ((), torch.float64, HOST)


def _is_unknown(node: fx.Node) -> bool:
    """Whether it is a number that is only known when the graph runs."""
    return isinstance(node.meta.get("val"), torch.SymFloat) and is_unbacked(node.meta["val"])


def _used_results(node: fx.Node, count: int) -> list[bool]:
    """Which results of a node are read by getitem; all, if something uses the whole tuple."""
    used = [False] * count
    for user in node.users:
        if user.target is not operator.getitem:
            return [True] * count
        used[cast(int, user.args[1])] = True
    return used


def _where(node: fx.Node) -> str:
    origin = node.meta.get("origin")
    return f"{origin.file}:{origin.line}" if origin and origin.file else ""
