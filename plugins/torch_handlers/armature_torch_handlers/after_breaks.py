"""What runs as it is after a graph break: what leads to the next break and only reads numbers out of tensors.

A break costs some 15 us in each call, an operator on one number 1 us. So a loop that breaks in every round with nothing
but such operators between runs as it is, and so do operators with a size that depends on values, one behind the other.
What computes more stays compiled, also in the same loop. The program's own instructions run, whatever is guessed here
of their operands: a wrong guess costs time, and changes no result.

From Python 3.12 on a loop ends with instructions that a loop never runs (END_FOR): the search stops there, so that what
follows a loop may break once more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import attrs

from armature.plugin_api import FrameView, Instruction, Tracing, decode, loads_method, program_of, successors
from armature_torch_handlers import kinds
from armature_torch_handlers.kinds import ANY, NULL, PLAIN, VIEW, Kind, NotCheap

MOST_VISITS = 2_000  # instructions looked at, in one search
NOTHING = frozenset({"NOP", "PRECALL", "KW_NAMES", "JUMP_FORWARD", "JUMP_BACKWARD", "FOR_ITER"})
NEW = {"BUILD_LIST": kinds.LIST, "BUILD_MAP": kinds.DICT, "BUILD_SET": kinds.SET, "BUILD_SLICE": VIEW}
ADDS_TO = {"LIST_APPEND": 1, "SET_ADD": 1, "MAP_ADD": 2}  # what a comprehension keeps
COMPUTES = {"BINARY_OP": 2, "UNARY_NEGATIVE": 1, "UNARY_INVERT": 1, "UNARY_POSITIVE": 1}


@attrs.define
class State:
    """The kinds of what is on the stack and in the variables, before an instruction."""

    stack: list[Kind]
    variables: dict[str, Kind]

    def copy(self) -> State:
        """A state to change."""
        return State([*self.stack], {**self.variables})

    def joined(self, other: State) -> State:
        """What holds of both."""
        names = self.variables.keys() | other.variables.keys()
        variables = {name: kinds.join(self.variables.get(name, ANY), other.variables.get(name, ANY)) for name in names}
        return State([kinds.join(one, two) for one, two in zip(self.stack, other.stack)], variables)

    def pop(self, count: int) -> list[Kind]:
        """The topmost items, the deepest first. Errors: NotCheap."""
        if count > len(self.stack):
            raise NotCheap
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken


def extend_break(frame: FrameView, tracing: Tracing) -> frozenset[int]:
    """The positions of the instructions that run as they are along with the next one of a frame."""
    if tracing.config.capture_scalar_outputs or tracing.config.capture_dynamic_output_shape_ops:
        return frozenset()
    search = Search(frame)
    if frame.position < len(search.instructions):  # not where a resume function has restored the stack
        search.run()
    return search.leading_to_breaks()


class Search:
    """Follows the instructions of a frame from the one at which it breaks, as far as they are cheap.

    states: before each of these. edges: where they go on. breaks: positions that end a graph.
    """

    def __init__(self, frame: FrameView) -> None:
        self.frame = frame
        self.instructions = decode(program_of(frame.code))
        self.kinds_at_break = {name: kinds.kind_of_object(obj) for name, (obj, _) in frame.lazy.items()}
        self.kinds_at_break |= {name: kinds.kind_of(value) for name, value in frame.variables.items()}
        self.states: dict[int, State] = {}
        self.edges: dict[int, list[int]] = {}
        self.breaks = {frame.position}

    def run(self) -> None:
        """Find the states."""
        todo = self._after(self.frame.position, State([*map(kinds.kind_of, self.frame.stack)], self.kinds_at_break))
        for _ in range(MOST_VISITS):
            if not todo:
                return
            position, state = todo.pop()
            held = self.states.get(position)
            now = state if held is None else held.joined(state)
            if now != held:
                self.states[position] = now
                todo += self._after(position, now)
        self.edges.clear()  # of so long a function nothing is said

    def leading_to_breaks(self) -> frozenset[int]:
        """The cheap instructions from which a break is reached over such instructions alone."""
        cheap = self.states.keys() & self.edges.keys()
        found = cheap & self.breaks
        while more := {at for at in cheap - found if not found.isdisjoint(self.edges[at])}:
            found |= more
        return frozenset(found)

    def _after(self, position: int, before: State) -> list[tuple[int, State]]:
        """The states behind an instruction, none if it is not cheap."""
        inst, state = self.instructions[position], before.copy()
        try:
            self._step(inst, position, state)
            handler = inst.protection.target if inst.protection is not None else -1
            following = [step for step in successors(self.instructions, position) if step != handler]
            found = [(step, self._at(inst, step == inst.target, state.copy())) for step in following]
        except NotCheap:
            self.edges.pop(position, None)
            return []
        self.edges[position] = following
        return found

    @staticmethod
    def _at(inst: Instruction, jumps: bool, state: State) -> State:
        """The state where an instruction goes on, if that depends on whether it jumps."""
        if inst.opname == "FOR_ITER":
            (iterator,) = state.pop(1)
            if iterator.name != "iterator":
                raise NotCheap
            state.stack += [] if jumps else [iterator, iterator.items[0]]
        elif inst.opname.startswith("JUMP_IF_") and not jumps:
            state.pop(1)
        return state

    def _step(self, inst: Instruction, position: int, state: State) -> None:
        """Change a state as an instruction does. Errors: NotCheap."""
        name, stack = inst.opname, state.stack
        if name in NOTHING:
            return
        if name in ("STORE_FAST", "POP_TOP"):
            (value,) = state.pop(1)
            if name == "STORE_FAST":
                variable = str(inst.argval)
                likely = self.kinds_at_break.get(variable, ANY)  # of what is not known: the kind that it had
                state.variables[variable] = likely if value == ANY else value
        elif name.startswith(("LOAD_", "PUSH_")):
            self._load(inst, state)
        elif name in ("COPY", "SWAP"):
            below = state.pop(inst.arg)
            stack += [*below, below[0]] if name == "COPY" else [below[-1], *below[1:-1], below[0]]
        elif name == "BUILD_TUPLE":
            stack.append(Kind("tuple", items=tuple(state.pop(inst.arg))))
        elif name in NEW:
            state.pop(inst.arg * (2 if name == "BUILD_MAP" else 1))
            stack.append(NEW[name])
        elif name == "UNPACK_SEQUENCE":
            (whole,) = state.pop(1)
            stack += [kinds.item_of(whole, place) for place in reversed(range(inst.arg))]
        elif name in ADDS_TO:
            state.pop(ADDS_TO[name])
        elif name == "STORE_SUBSCR":
            value, holder, index = state.pop(3)
            kinds.stored(holder, index, value)
        elif "_IF_" in name:
            self._reads(position, state.stack[-1].is_tensor and "NONE" not in name)
            if name.startswith("POP_"):
                state.pop(1)
        else:
            stack.append(self._result(inst, position, state))

    def _reads(self, position: int, ends: bool) -> None:
        """Note whether an instruction ends a graph."""
        if ends:
            self.breaks.add(position)

    def _read(self, position: int, find: Callable[[], tuple[Kind, bool]]) -> Kind:
        """The kind of what an instruction reads, noting whether that ends a graph. Errors: NotCheap, but not of the
        instruction that breaks anyway."""
        try:
            result, ends = find()
        except NotCheap:
            if position != self.frame.position:
                raise
            return ANY
        self._reads(position, ends)
        return result

    def _result(self, inst: Instruction, position: int, state: State) -> Kind:
        """What an instruction pushes. Errors: NotCheap."""
        name = inst.opname
        if name in ("CALL", "CALL_KW"):
            args = state.pop(inst.arg + (name == "CALL_KW"))[: inst.arg]
            function = next((kind for kind in state.pop(2) if kind != NULL), ANY)
            return self._read(position, functools.partial(kinds.called, function, args))
        if name == "BINARY_SUBSCR":
            return self._read(position, functools.partial(kinds.subscript, *state.pop(2)))
        if name in ("UNARY_NOT", "TO_BOOL"):
            self._reads(position, state.pop(1)[0].is_tensor)
            return PLAIN
        if name == "IS_OP":
            state.pop(2)
            return PLAIN
        if name == "CONTAINS_OP":
            item, holder = state.pop(2)
            if item != PLAIN or holder.name not in kinds.HOLDERS:
                raise NotCheap
            return PLAIN
        if name == "GET_ITER":
            return kinds.iterator_over(*state.pop(1))
        if name == "COMPARE_OP":
            return kinds.compared(*state.pop(2))
        if name in COMPUTES:
            return kinds.computed(*state.pop(COMPUTES[name]))
        raise NotCheap

    def _load(self, inst: Instruction, state: State) -> None:
        """Push what an instruction reads. Errors: NotCheap."""
        name, stack, argument = inst.opname, state.stack, inst.argval
        if name in ("LOAD_FAST", "LOAD_FAST_CHECK"):
            stack.append(state.variables.get(argument, ANY))
        elif name == "LOAD_DEREF":
            stack.append(kinds.content_of(self.frame.cells.get(argument)))
        elif name == "LOAD_CONST":
            stack.append(PLAIN if isinstance(argument, int | float | str) else VIEW)
        elif name == "LOAD_GLOBAL":
            found = self.frame.namespace.get(argument, self.frame.builtins.get(argument))
            stack += [NULL] * (inst.arg & 1) + [Kind("object", python_object=found)]
        elif name == "PUSH_NULL":
            stack.append(NULL)
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            (owner,) = state.pop(1)
            stack += [NULL] * loads_method(inst) + [kinds.attribute_of(owner, argument)]
        else:
            raise NotCheap
