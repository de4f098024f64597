"""Generates the code that runs instead of a frame: load inputs, call the graph, build the result, replay changes."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import attrs
from bytecode import Bytecode, CompilerFlags, Instr, Label
from bytecode.instr import CellVar, InstrLocation, TryBegin, TryEnd

from armature.frame.rerun import Rerun, Undo
from armature.frame.sources import LocalSource, Source
from armature.frame.stack_size import stack_size
from armature.frame.trampoline import forget_caller
from armature.torch_abi import overrides
from armature.torch_abi.grad_modes import set_default_dtype, set_grad_enabled
from armature.trace.base import Value, Write
from armature.trace.data import CompiledGraphSlot
from armature.trace.emit.rerun import plan
from armature.trace.emit.value_writer import ValueWriter, output_name
from armature.trace.recording.graph_nodes import only_computes

GENERATOR_FLAGS = CompilerFlags.GENERATOR | CompilerFlags.COROUTINE | CompilerFlags.ASYNC_GENERATOR


@attrs.define(eq=False)
class Rebuilder(ValueWriter):
    """Writes the code that runs instead of the frame's own."""

    undo: Undo = attrs.field(factory=Undo)
    _rerun: Rerun | None = None  # runs the frame in eager mode when the graph raises
    _failed: Label = attrs.field(factory=Label)

    def finish(self, result: Value, slot: CompiledGraphSlot | None) -> CodeType:
        """Call the graph, prepare the result and the changes, make the changes, return the result."""
        prologue = self.prologue(slot)
        self._body(result)
        written = [*prologue, *self._size_reads, *self.epilogue(slot), *self.main, *self.after_failure()]
        return self._assemble(written, stack_size(written))

    def _count_uses(self, sources: list[Source]) -> None:
        """Count how often each prefix of the sources is loaded."""
        for source in sources:
            step: Source | None = source
            while step is not None:
                self._uses[step] = self._uses.get(step, 0) + 1
                step = getattr(step, "base", None) if self._uses[step] == 1 else None

    def prologue(self, slot: CompiledGraphSlot | None) -> list[Any]:
        """The instructions up to and including the call of the graph."""
        for name in self.code.co_freevars:
            cell = self.tracer.objects.free.get(name)
            if cell is not None:
                self._cells[id(cell)] = name
        self._count_uses([value.source for value in self.tracer.recorder.inputs if value.source is not None])
        with self.into([]) as written:
            self._prologue(slot)
        return written

    def after_failure(self) -> list[Any]:
        """The instructions that run when the graph raises: they rerun the frame from its start, in eager mode."""
        if self._rerun is None:
            return []
        with self.into([self._failed]) as written:
            self._write_rerun(self._rerun)
        return written

    def _write_rerun(self, rerun: Rerun) -> None:
        """Check whether the frame may run again, run it, and report an error if the rerun does not raise."""
        self.null_function(rerun.failed)
        self.emit("COPY", 3)
        self.call(1)
        reruns, out, problem = Label(), Label(), self.temporary()
        self.emit("COPY", 1)
        self.emit("STORE_FAST", problem)
        self.jump_if_not_none(reruns)
        self.emit("RERAISE", 0)
        self.mark(reruns)
        self.emit("POP_TOP")
        begin = TryBegin(out, False, 0)
        self.mark(begin)
        self._before.undo(self)
        self._call_own(rerun)
        self.mark(TryEnd(begin))
        result = self.temporary()
        self.emit("STORE_FAST", result)
        self.null_function(rerun.finished)
        self.emit("LOAD_FAST", result)
        self.emit("LOAD_FAST", problem)
        self.constant(None)
        self.emit("STORE_FAST", problem)  # the error refers to this frame: avoid a cycle
        self.call(2)
        self.emit("RETURN_VALUE")
        self.mark(out)
        self.constant(None)
        self.emit("STORE_FAST", problem)
        self.null_function(forget_caller)
        self.emit("COPY", 3)
        self.call(1)
        self.emit("POP_TOP")
        self.emit("RERAISE", 0)

    def _call_own(self, rerun: Rerun) -> None:
        """Call a copy of the frame's own code with the frame's arguments, and push the result."""
        code = rerun.code
        names = code.co_varnames
        positional, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        stars = bool(code.co_flags & CompilerFlags.VARARGS)

        def load_code() -> None:
            self.null_function(rerun.own_code)
            self.call(0)

        namespace = self.tracer.request.globals
        self.function(lambda: self.new_function(load_code, namespace, code.co_name, cells=code.co_freevars))
        for name in names[:positional]:
            self.load_source(LocalSource(name))
        self.build("BUILD_LIST", positional)
        if stars:
            self.load_source(LocalSource(names[total]))
            self.emit("LIST_EXTEND", 1)
        self.list_to_tuple()
        for name in names[positional:total]:
            self.constant(name)
            self.load_source(LocalSource(name))
        self.build("BUILD_MAP", code.co_kwonlyargcount)
        if code.co_flags & CompilerFlags.VARKEYWORDS:
            self.load_source(LocalSource(names[total + stars]))
            self.emit("DICT_MERGE", 1)
        self.emit("CALL_FUNCTION_EX", 1)

    def epilogue(self, slot: CompiledGraphSlot | None) -> list[Any]:
        """The instructions that store the graph's outputs in variables."""
        with self.into([]) as written:
            if slot is not None and not self.outputs:
                self.emit("POP_TOP")
            elif slot is not None:
                self.emit("UNPACK_SEQUENCE", len(self.outputs))
                for position in range(len(self.outputs)):
                    self.emit("STORE_FAST", output_name(position))
        return written

    def _prologue(self, slot: CompiledGraphSlot | None) -> None:
        """Write everything up to and including the graph's call. `slot`: None if no graph is called. If the frame can
        run again from its start, a handler covers the calls before the graph and the call of the graph."""
        if self.code.co_freevars:
            self.emit("COPY_FREE_VARS", len(self.code.co_freevars))
        for name in self.code.co_cellvars:
            self.emit("MAKE_CELL", CellVar(name))
        self.emit("RESUME", 0)
        for source in self.tracer.sizes.contents if self.tracer.recorder.mutates else ():
            self.load_source(source)
            self._read_early[source] = self.temporary()
            self.emit("STORE_FAST", self._read_early[source])
        now, functions = self.tracer, self.tracer.knowledge.tables.functions
        self.undo = Undo() if slot is None else plan(now.recorder, now.effects, now.fakes, functions)
        # A frame may run again if nothing visible has happened by then.
        undone = slot is not None and (self.undo.saves or not self.undo.has_effects)
        repeats, precalled = undone and only_computes(self.tracer.recorder), bool(self.tracer.precalls.calls)
        if self.tracer.ending.breaks and (self.undo.lasting or not repeats):
            raise self.tracer.ending.breaks[0]
        if repeats or precalled:
            strict = self.tracer.config.strict or self.tracer.users_backend
            self._rerun = Rerun.of(self.code, self.undo, not (self.tracer.stack.has_handlers or precalled), strict)
        begin = TryBegin(self._failed, False, 0)
        if precalled:
            self._before.save(self)
            self.mark(begin)
            self._size_reads, sizes_of_body = self._now, self._size_reads  # numbers that these calls need are read here
            self._before.calls(self)
            self._size_reads = sizes_of_body
            if not repeats:
                self.mark(TryEnd(begin))
        if slot is None:
            return
        alone = not self.tracer.overrides.present
        if alone:
            self.function(lambda: self.constant(slot))
        else:
            self.null_function(overrides.run_plain)
            self.constant(slot)
        for value in self.tracer.recorder.inputs:
            if value.source is not None:
                self.load_source(value.source)
        if repeats and not precalled:
            self.mark(begin)
            self.emit("NOP")  # Python 3.13 may look for the handler one instruction before the call
        self.call(len(self.tracer.recorder.inputs) + (not alone))
        if repeats:
            self.mark(TryEnd(begin))

    def _body(self, result: Value) -> None:
        writes = self.changes()
        self.load(result)
        self.make_writes(self.prepare(writes))
        self.emit("RETURN_VALUE")

    def changes(self) -> list[Write]:
        """The calls that bring all objects to their final state."""
        effects = self.tracer.effects
        found: list[Write] = []
        for changed in list(effects.changed):
            found += changed.writes(self)
        for (cls, attribute), held in effects.class_attributes.items():
            found.append(Write(type.__setattr__, (self.value(cls), self.value(attribute), held)))
        for (_, name), (namespace, value) in effects.globals_.items():
            where = self.value(namespace)
            if value is None:
                found.append(Write(dict.__delitem__, (where, self.value(name))))
            else:
                found.append(Write(dict.__setitem__, (where, self.value(name), value)))
        if effects.chosen_dtype is not None:
            found.append(Write(set_default_dtype, (self.value(effects.chosen_dtype),)))
        found += [*self.tracer.overrides.writes(self), *effects.calls]
        if effects.grad_changed:
            found.append(Write(set_grad_enabled, (self.value(effects.grad_after),)))
        return found

    def prepare(self, writes: list[Write]) -> list[tuple[Callable[..., object], list[str]]]:
        """Store the operands of all writes in variables."""
        return [(write.function, [self.keep(operand) for operand in write.operands]) for write in writes]

    def make_writes(self, prepared: list[tuple[Callable[..., object], list[str]]]) -> None:
        """Apply the changes to the program's objects."""
        for function, names in prepared:
            self.null_function(function)
            for name in names:
                self.emit("LOAD_FAST", name)
            self.call(len(names))
            self.emit("POP_TOP")
        for function, name, argument in self._late:
            self.null_function(function)
            self.emit("LOAD_FAST", name)
            self.constant(argument)
            self.call(2)
            self.emit("POP_TOP")

    def _assemble(self, instructions: list[Any], stacksize: int) -> CodeType:
        code = self.code
        made = Bytecode(instructions)
        first = InstrLocation(code.co_firstlineno, None, None, None)
        for inst in made:
            if isinstance(inst, Instr) and inst.location is None:
                inst.location = first
        made.name, made.qualname, made.filename = code.co_name, code.co_qualname, code.co_filename
        made.first_lineno, made.flags = code.co_firstlineno, CompilerFlags(code.co_flags & ~GENERATOR_FLAGS)
        made.argcount, made.posonlyargcount = code.co_argcount, code.co_posonlyargcount
        made.kwonlyargcount = code.co_kwonlyargcount
        extra = bool(code.co_flags & CompilerFlags.VARARGS) + bool(code.co_flags & CompilerFlags.VARKEYWORDS)
        made.argnames = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra])
        made.freevars, made.cellvars = list(code.co_freevars), list(code.co_cellvars)
        # Handlers state their own stack depths: keep them. (It takes long to compute them.)
        return made.to_code(stacksize=stacksize, compute_exception_stack_depths=False)
