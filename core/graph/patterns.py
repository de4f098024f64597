"""Finds and replaces parts of a graph. A pattern is a small Python function that makes the calls to look for.

The function's parameters match anything, a tensor or a constant; a parameter that is used twice must match the same
thing twice. Other constants must be equal. Equivalent methods, operators and functions match one another.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import Tensor, fx
from torch.fx.proxy import GraphAppendingTracer

from armature.errors import InvariantError, invariant
from armature.graph.facts import commuting
from armature.graph.spellings import function_of, spelled
from armature.torch_abi.operators import WrittenArgument, written_arguments
from armature.torch_abi.overrides import Asking
from armature.torch_abi.views import share_memory

if TYPE_CHECKING:
    from armature.services import Services
    from armature.torch_abi.functions import Functions

Bound = dict[str, object]
OPERATORS = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
)
IN_PLACE = frozenset((operator.setitem, *(getattr(operator, f"i{name.rstrip('_')}") for name in OPERATORS)))


def fake_of(node: object) -> Any:
    """The fake tensor or size of a graph node; any other object unchanged."""
    if not isinstance(node, fx.Node):
        return node
    return node.meta["val"] if "val" in node.meta else node.meta.get("example_value")


@attrs.frozen(eq=False)
class Match:
    """A place where a pattern was found. `root`: the node of the result. `bound`: a node or constant for each parameter
    of the pattern. `inner`: the nodes that the pattern matched, including the root."""

    root: fx.Node
    bound: Mapping[str, object]
    inner: frozenset[fx.Node]

    def fake(self, name: str) -> Any:
        """The fake tensor bound to a parameter; a constant unchanged."""
        return fake_of(self.bound[name])


def _always(match: Match) -> bool:
    return True


@attrs.frozen(eq=False)
class Pattern:
    """A function over `fx.Proxy`, captured as a graph. `parameters`: the wildcards that occur in it."""

    output: fx.Node
    parameters: frozenset[str]

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Pattern:
        """Capture a function. Errors: InvariantError if the function doesn't end with a call."""
        graph = fx.Graph()
        tracer = GraphAppendingTracer(graph)
        with Asking():  # proxies are also asked where a graph is compiled while a subclass computes
            result = fn(*(fx.Proxy(graph.placeholder(name), tracer) for name in parameters(fn)))
        called = isinstance(result, fx.Proxy) and result.node.op.startswith("call_")
        invariant(called, "a pattern has to return the result of a call", pattern=fn, gives=type(result))
        return cls(result.node, frozenset(str(n.target) for n in graph.find_nodes(op="placeholder") if n.users))

    def match(self, root: fx.Node, functions: Functions, commuting: Container[object] = ()) -> Match | None:
        """Match the pattern with `root` as its result; None if it does not match. commuting: functions of two operands
        of which either may be the first."""
        for bound, inner in _Unifier(functions, commuting).unify(self.output, root, {}, {}):
            if bound.keys() == self.parameters:
                return Match(root, bound, frozenset(inner.values()))
        return None


def parameters(fn: Callable[..., Any]) -> Iterator[str]:
    """The names of the parameters that may be passed by position."""
    for one in inspect.signature(fn).parameters.values():
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            yield one.name


Inner = dict[fx.Node, fx.Node]
"""Nodes of the pattern, and the nodes of the graph that they match."""


@attrs.frozen(eq=False)
class _Unifier:
    """Matches values of a pattern with values of a graph."""

    functions: Functions
    commuting: Container[object]

    def unify(self, wanted: object, found: object, bound: Bound, inner: Inner) -> Iterator[tuple[Bound, Inner]]:
        """All ways in which a value of the pattern matches a value of the graph."""
        if isinstance(wanted, fx.Node):
            if wanted.op == "placeholder":
                name = str(wanted.target)
                if name not in bound:
                    yield {**bound, name: found}, inner
                elif _equal(bound[name], found):
                    yield bound, inner
            elif wanted in inner:
                if inner[wanted] is found:
                    yield bound, inner
            elif isinstance(found, fx.Node):
                yield from self.calls(wanted, found, bound, inner)
        elif isinstance(wanted, (list, tuple)):
            if isinstance(found, (list, tuple)) and len(wanted) == len(found):
                yield from self.all(wanted, found, bound, inner)
        elif _equal(wanted, found):
            yield bound, inner

    def calls(self, wanted: fx.Node, found: fx.Node, bound: Bound, inner: Inner) -> Iterator[tuple[Bound, Inner]]:
        if function_of(wanted, self.functions) != function_of(found, self.functions):
            return
        one, other = spelled(wanted, self.functions), spelled(found, self.functions)
        if one is None or other is None or one.arguments.keys() != other.arguments.keys():
            return
        names = list(one.arguments)
        pattern, given = list(one.arguments.values()), [other.arguments[name] for name in names]
        inner = {**inner, wanted: found}
        yield from self.all(pattern, given, bound, inner)
        if one.function in self.commuting:
            yield from self.all(pattern, [given[1], given[0], *given[2:]], bound, inner)

    def all(
        self, wanted: Sequence[object], found: Sequence[object], bound: Bound, inner: Inner
    ) -> Iterator[tuple[Bound, Inner]]:
        if not wanted:
            yield bound, inner
            return
        for first_bound, first_inner in self.unify(wanted[0], found[0], bound, inner):
            yield from self.all(wanted[1:], found[1:], first_bound, first_inner)


def _equal(one: object, other: object) -> bool:
    if isinstance(one, fx.Node) or isinstance(other, fx.Node):
        return one is other
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


@attrs.frozen(eq=False)
class Rewrite:
    """A pattern and its replacement. `replacement` receives, by name, the parameters that occur in the pattern, as
    `fx.Proxy` objects or constants, and makes equivalent calls.

    when: a further condition on each match. name: for messages.
    """

    pattern: Callable[..., Any]
    replacement: Callable[..., Any]
    when: Callable[[Match], bool] = _always
    name: str = ""

    def __str__(self) -> str:
        return self.name or getattr(self.pattern, "__name__", "rewrite")


@attrs.frozen(eq=False)
class Rewriting:
    """The `run` of a pass: replaces matches of the patterns, by the first rewrite that fits at each node."""

    rewrites: tuple[Rewrite, ...]
    _captured: list[tuple[Rewrite, Pattern]] = attrs.field(factory=list, init=False)

    def __call__(self, module: object, ctx: Services) -> object:
        """The module after all replacements."""
        if not isinstance(module, fx.GraphModule):
            return module
        changed = False
        by_root, either_way = self._by_root(ctx.functions), commuting(ctx.operators)
        for node in list(module.graph.nodes):
            for rewrite, pattern in by_root.get(function_of(node, ctx.functions), ()):
                match = pattern.match(node, ctx.functions, either_way)
                if match is not None and is_replaceable(match) and rewrite.when(match):
                    replace_match(module.graph, match, rewrite.replacement, str(rewrite))
                    changed = True
                    break
        if changed:
            module.recompile()
        return module

    def _by_root(self, functions: Functions) -> Mapping[Hashable, list[tuple[Rewrite, Pattern]]]:
        """The patterns by the function of their result. They are captured on first use, so that plugins pay only for
        patterns that are searched for."""
        if not self._captured:
            self._captured.extend((rewrite, Pattern.of(rewrite.pattern)) for rewrite in self.rewrites)
        found: dict[Hashable, list[tuple[Rewrite, Pattern]]] = {}
        for rewrite, pattern in self._captured:
            found.setdefault(function_of(pattern.output, functions), []).append((rewrite, pattern))
        return found


def rewriting(rewrites: Iterable[Rewrite]) -> Rewriting:
    """The `run` of a pass that applies rewrites: `Pass("my-rewrites", "pre_grad", rewriting([...]))`."""
    return Rewriting(tuple(rewrites))


def is_replaceable(match: Match) -> bool:
    """Whether nothing else reads the nodes to remove, and no write or state change lies between the first and the
    last."""
    for node in match.inner:
        outside = any(user not in match.inner for user in node.users)
        if outside and node is not match.root and not _is_view(node):
            return False
    todo = set(match.inner)
    node = match.root
    while todo:
        todo.discard(node)
        if _does_more(node):
            return False
        node = node.prev
    return True


def _is_view(node: fx.Node) -> bool:
    """Whether duplicating it costs nothing."""
    made = fake_of(node)
    given = [fake_of(needed) for needed in node.all_input_nodes]
    return isinstance(made, Tensor) and any(isinstance(one, Tensor) and share_memory(made, one) for one in given)


def _does_more(node: fx.Node) -> bool:
    """Whether a node writes to a tensor, or changes state that other nodes depend on."""
    target: Any = node.target
    if not node.op.startswith("call_") or target is operator.getitem:
        return False
    if isinstance(target, torch._ops.OpOverload):
        return bool(target._schema.is_mutable)
    if "changes_state" in node.meta or target in IN_PLACE:
        return True
    return any(_is_written(one, node) for one in written_arguments(target))


def _is_written(one: WrittenArgument, node: fx.Node) -> bool:
    """Whether the argument is given, and its flag true or unknown."""
    position, name = (one.flag_position, one.flag) if one.flag else (one.position, one.name)
    by_position = position is not None and position < len(node.args)
    given = node.args[position] if by_position and position is not None else node.kwargs.get(name)
    return given is not None and given is not False


def replace_match(graph: fx.Graph, match: Match, replacement: Callable[..., Any], name: str) -> None:
    """Insert the replacement before the root, and drop nodes that are no longer read. name: for messages.

    Errors: InvariantError if the replacement's shape, dtype, device or strides differ.
    """
    before = match.root.prev
    tracer = GraphAppendingTracer(graph)
    given = {k: fx.Proxy(v, tracer) if isinstance(v, fx.Node) else v for k, v in match.bound.items()}
    with graph.inserting_before(match.root), Asking():
        result = replacement(**given)
    invariant(isinstance(result, fx.Proxy), "a replacement returns no tensor", rewrite=name)
    made: list[fx.Node] = []
    node = before.next
    while node is not match.root:
        made.append(node)
        node = node.next
    key = "val" if "val" in match.root.meta else "example_value"
    with torch.set_grad_enabled(bool(getattr(fake_of(match.root), "requires_grad", False))):
        for node in made:
            node.meta.update({k: match.root.meta[k] for k in ("origin", "stack_trace") if k in match.root.meta})
            node.meta[key] = _computed(node, fake_of(match.root))
    _check_alike(match.root, result.node, name)
    match.root.replace_all_uses_with(result.node)
    drop_unread(graph, match.root)


def _computed(node: fx.Node, like: Tensor) -> Any:
    # an input's fake is another, from before the writes, if the program writes to one
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: one.meta.get("traced_value", fake_of(one)))
    mode: Any = getattr(like, "fake_mode", None)
    invariant(mode is not None, "a match without a tensor", node=node)
    target: Any = getattr(args[0], str(node.target)) if node.op == "call_method" else node.target
    with mode:
        return target(*(args[1:] if node.op == "call_method" else args), **kwargs)


def _check_alike(root: fx.Node, made: fx.Node, rewrite: str) -> None:
    wanted, found = map(_facts, (fake_of(root), fake_of(made)))
    if wanted != found:
        details = f"rewrite={rewrite}, wanted={wanted}, given={found}, at={root.meta.get('origin')}"
        raise InvariantError(what="a replacement's result differs from the original's", details=details)


def _facts(value: Tensor) -> tuple[object, ...]:
    """What the results must have in common; a step along an axis of one element means nothing."""
    sizes, steps = tuple(value.shape), value.stride()
    strides = tuple(step for size, step in zip(sizes, steps, strict=True) if not (isinstance(size, int) and size == 1))
    return sizes, value.dtype, value.device, strides


def drop_unread(graph: fx.Graph, root: fx.Node) -> None:
    """Remove an unread node, and the nodes that only it read."""
    todo = [root]
    while todo:
        node = todo.pop()
        if not node.users and node.op.startswith("call_") and not node._erased:
            todo += node.all_input_nodes
            graph.erase_node(node)
