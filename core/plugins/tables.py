"""The tables: all rows of all plugins, collected once and frozen; stages query them instead of calling hooks."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import torch

from armature.breaks.types import BreakEvent, BreakType
from armature.errors import DuplicateRow, HookFailed, PluginError, UnknownBreakType
from armature.graph.data import STAGES, Decomposition, Lowering, Pass
from armature.graph.facts import Operator, fake_rules
from armature.introspection import Subject, is_object_of
from armature.plugins.calls import Implementation, Plugin, call, failed, invalid, origin_of, rows_of
from armature.plugins.pass_order import in_order
from armature.plugins.registry import Contest, Registry, Row, identity_key, name_of
from armature.rules.book import RuleBook
from armature.rules.data import Rule, RuleOrigin, RuleTable, Verdict
from armature.schedule.data import FusionRule
from armature.torch_abi.fake_rules import FakeRules
from armature.torch_abi.functions import Function, Functions
from armature.trace.handlers import Handler, Polyfill, ValueType
from armature.trace.signatures import Signature

if TYPE_CHECKING:
    from armature.codegen.backend import DeviceBackend
    from armature.events import CompileEvent
    from armature.run.replay import LaunchRecorder
    from armature.trace.base import FrameView, Tracing, Value

T = TypeVar("T")
Report = Callable[[PluginError], None]
BREAK_TYPES_FROM = "armature-builtin-rules"


class IdentityMap(Mapping[object, T]):
    """A mapping from objects by identity: keys need no hash, and their `__eq__` is never called."""

    def __init__(self, registry: Registry[T]) -> None:
        self._rows = {key: held[0] for key, held in registry.rows.items()}

    def __getitem__(self, key: object) -> T:
        return self._rows[identity_key(key)].value

    def __iter__(self) -> Iterator[object]:
        return (row.subject for row in self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return identity_key(key) in self._rows


@attrs.frozen(eq=False)
class Decider:
    """`armature_decide` of one plugin: called with a subject, returns a verdict that names the plugin, or None."""

    implementation: Implementation
    report: Report

    def __call__(self, subject: Subject) -> Verdict | None:
        """The plugin's verdict. A hook that raises or returns something else is reported, and counts as None."""
        try:
            verdict = call(self.implementation, subject=subject)
            if verdict is None:
                return None
            if not isinstance(verdict, Verdict):
                raise invalid(self.implementation, verdict, "expected a Verdict or None")
        except PluginError as error:
            self.report(error)
            return None
        if verdict.origin.plugin == self.implementation.plugin.title:
            return verdict
        origin = attrs.evolve(verdict.origin, plugin=self.implementation.plugin.title)
        return attrs.evolve(verdict, origin=origin if origin.line else self.implementation.origin)


@attrs.define(eq=False)
class RuleRegistry(Registry[Rule]):
    """The rules. Rules in tables become rows on demand."""

    tables: list[Row[RuleTable]] = attrs.field(factory=list)

    def all_rows(self) -> Iterator[Row[Rule]]:
        """Every rule, separately."""
        yield from super().all_rows()
        for row in self.tables:
            yield from (_row_of(row, at) for at in range(len(row.value.names)))

    def contests(self) -> Iterator[Contest[Rule]]:
        """Names and objects with more than one rule."""
        wanted = self._names_wanted_twice()
        if not wanted:
            return super().contests()
        both = Registry[Rule](self.name, self.key, {key: list(held) for key, held in self.rows.items()})
        for row in self.tables:
            for at in [at for at, name in enumerate(row.value.names) if name in wanted]:
                both.add(_row_of(row, at))
        return both.contests()

    def count(self, plugin: Plugin) -> int:
        """The number of rules from a plugin."""
        single = sum(row.plugin is plugin for held in self.rows.values() for row in held)
        return single + sum(len(row.value.names) for row in self.tables if row.plugin is plugin)

    def _names_wanted_twice(self) -> set[str]:
        seen = {name for row in super().all_rows() if (name := row.value.name)}
        twice: set[str] = set()
        for row in self.tables:
            names = set(row.value.names)
            twice |= names & seen
            seen |= names
            if len(names) < len(row.value.names):
                twice |= {name for name, count in Counter(row.value.names).items() if count > 1}
        return twice


def _row_of(row: Row[RuleTable], at: int) -> Row[Rule]:
    rule = row.value.rule(at, row.origin.plugin)
    return Row((rule.target, rule.requires), rule, row.plugin, rule.origin or row.origin, row.precedence)


@attrs.define(eq=False)
class Registries:
    """A registry per kind of row."""

    rules: RuleRegistry = attrs.field(factory=lambda: RuleRegistry("rule", identity_or_text))
    handlers: Registry[Handler] = attrs.field(factory=lambda: Registry("handler", identity_key))
    value_types: Registry[ValueType] = attrs.field(factory=lambda: Registry("value type", identity_key))
    polyfills: Registry[Polyfill] = attrs.field(factory=lambda: Registry("polyfill", identity_key))
    signatures: Registry[Signature] = attrs.field(factory=lambda: Registry("signature", identity_key))
    break_types: Registry[BreakType] = attrs.field(factory=lambda: Registry("break type", text))
    decompositions: Registry[Decomposition] = attrs.field(factory=lambda: Registry("decomposition", identity_key))
    lowerings: Registry[Lowering] = attrs.field(factory=lambda: Registry("lowering", identity_key))
    operators: Registry[Operator] = attrs.field(factory=lambda: Registry("operator", identity_key))
    functions: Registry[Function] = attrs.field(factory=lambda: Registry("function", identity_key))
    passes: Registry[Pass] = attrs.field(factory=lambda: Registry("pass", text))
    fusion_rules: Registry[FusionRule] = attrs.field(factory=lambda: Registry("fusion rule", text))
    graph_backends: Registry[Callable[..., Any]] = attrs.field(factory=lambda: Registry("graph backend", text))

    def by_name(self) -> Mapping[str, Registry[Any]]:
        """Maps a table's plural name, "handlers", to its registry."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}


def text(subject: object) -> Hashable:
    """A key that is its own text."""
    return str(subject)


def identity_or_text(subject: object) -> Hashable:
    """Rules are keyed by names as well as by objects; rows for different versions of a distribution do not collide."""
    target, requires = subject if isinstance(subject, tuple) else (subject, "")
    return (target if is_object_of(target, str) else identity_key(target), requires)


@attrs.frozen(eq=False)
class Tables:
    """A snapshot of all plugins' rows, made by the plugin manager; `epoch` grows with each new snapshot.

    rules: every rule, or table of rules, with its origin, in the order of the plugins. rule_book: answers from them,
    with a cache that lives as long as the snapshot.
    """

    epoch: int
    plugins: tuple[Plugin, ...]
    registries: Registries
    rules: tuple[tuple[Rule | RuleTable, RuleOrigin], ...]
    handlers: Mapping[object, Handler]
    decompositions: Mapping[torch._ops.OpOverload, Decomposition]
    lowerings: Mapping[torch._ops.OpOverload, Lowering]
    operators: Mapping[torch._ops.OpOverload, Operator]
    fake_rules: FakeRules
    functions: Functions
    fusion_rules: tuple[FusionRule, ...]
    graph_backends: Mapping[str, Callable[..., Any]]
    _handler_index: Mapping[Hashable, tuple[Handler, ...]]
    _polyfill_index: Mapping[Hashable, Polyfill]
    _signature_index: Mapping[Hashable, Signature]
    _exact_types: Mapping[type, ValueType]
    _predicates: tuple[Row[ValueType], ...]
    _ordered: Mapping[str, tuple[Pass, ...]]
    _hooks: Mapping[str, tuple[Implementation, ...]]
    _report: Report
    _backends: dict[str, DeviceBackend | None] = attrs.field(factory=dict)
    _recorders: dict[str, LaunchRecorder | None] = attrs.field(factory=dict)
    rule_book: RuleBook = attrs.field(init=False, default=attrs.Factory(RuleBook, takes_self=True))
    ids_with_rows: frozenset[int] = attrs.field(init=False)
    base_readers: dict[type, Callable[..., Value]] = attrs.field(init=False)
    constant_types: frozenset[type] = attrs.field(init=False)
    checked_modules: frozenset[str] = attrs.field(init=False)

    @ids_with_rows.default
    def _ids_with_rows(self) -> frozenset[int]:
        # Ids of objects that have a handler or polyfill; methods, which are made anew at each access, have no stable
        # id.
        keys = (*self._handler_index, *self._polyfill_index)
        return frozenset(key for key in keys if isinstance(key, int))

    @base_readers.default
    def _base_readers(self) -> dict[type, Callable[..., Value]]:
        # For types whose rows say what an object of a derived class inherits from them.
        return {kind: row.base for kind, row in self._exact_types.items() if row.base is not None}

    @constant_types.default
    def _constant_types(self) -> frozenset[type]:
        return frozenset(kind for kind, row in self._exact_types.items() if row.constant)

    @checked_modules.default
    def _checked_modules(self) -> frozenset[str]:
        # The arguments of C functions in these modules are checked.
        rows = self._signature_index.values()
        return frozenset(row.fn.__name__ for row in rows if isinstance(row.fn, ModuleType))

    def handler(self, fn: object) -> Handler | None:
        """The handler of this very function."""
        return next(iter(self.handlers_of(fn)), None)

    def handlers_of(self, fn: object) -> tuple[Handler, ...]:
        """All handlers of this very function, in order: if one declines, the next one is asked."""
        return self._handler_index.get(identity_key(fn), ())

    def polyfill(self, fn: object) -> Polyfill | None:
        """The polyfill that is traced in place of this very function."""
        return self._polyfill_index.get(identity_key(fn))

    def signature(self, fn: object) -> Signature | None:
        """The parameters of this very function, for functions that `inspect.signature` can't describe."""
        return self._signature_index.get(identity_key(fn))

    def stand_in(self, fn: object) -> tuple[int, RuleOrigin] | None:
        """The priority and plugin of a polyfill for this very object; None if there is none."""
        origin, held = _origin_in(self.registries.polyfills, fn), self.polyfill(fn)
        return None if origin is None or held is None else (held.priority, origin)

    def handled_by(self, fn: object) -> RuleOrigin | None:
        """The origin of a handler for this very object."""
        return _origin_in(self.registries.handlers, fn)

    def exact_value_type(self, kind: type) -> ValueType | None:
        """The value type for objects of this very type."""
        return self._exact_types.get(kind)

    def value_types(self, obj: object) -> Iterator[ValueType]:
        """The value types for an object: of its exact type, those whose predicates hold, of a base class."""
        exact = self.exact_value_type(type(obj))
        if exact is not None:
            yield exact
        yield from (row.value for row in self._predicates if self._holds(row, obj))
        derived = self.value_type_of_class(type(obj))
        if derived is not None and derived is not exact:
            yield derived

    def value_type_of_class(self, cls: type) -> ValueType | None:
        """The value type that also applies to classes derived from its own: that of the nearest base."""
        for base in cls.__mro__:
            row = self._exact_types.get(base)
            if row is not None and row.derived:
                return row
        return None

    def break_type(self, id: str) -> BreakType:
        """A row of the break catalogue. Raises UnknownBreakType."""
        found = self.registries.break_types.first(id)
        if found is None:
            raise UnknownBreakType(id=id, distribution=BREAK_TYPES_FROM)
        return found

    def lowering_chain(self, op: torch._ops.OpOverload) -> tuple[Lowering, ...]:
        """All lowerings of an operator: the next is tried when one returns None."""
        return self.registries.lowerings.chain(op)

    def owner_of_lowering(self, lowering: Lowering) -> str:
        """The plugin that provides a lowering."""
        rows = self.registries.lowerings.rows[self.registries.lowerings.key(lowering.op)]
        return next(row.plugin.title for row in rows if row.value is lowering)

    def passes(self, stage: str) -> tuple[Pass, ...]:
        """The passes of a stage in execution order."""
        return self._ordered[stage]

    def owner_of_pass(self, name: str) -> str:
        """The plugin that provides a pass."""
        return self.registries.passes.rows[name][0].plugin.title

    def owner_of_fusion_rule(self, name: str) -> str:
        """The plugin that provides a rule of fusion."""
        return self.registries.fusion_rules.rows[name][0].plugin.title

    def device_backend(self, device_type: str) -> DeviceBackend | None:
        """The back end of a device type; the plugins are asked once per type."""
        if device_type not in self._backends:
            self._backends[device_type] = self._first("armature_device_backend", device_type=device_type)
        return self._backends[device_type]

    def launch_recorder(self, device_type: str) -> LaunchRecorder | None:
        """The launch recorder of a device type; the plugins are asked once per type."""
        if device_type not in self._recorders:
            self._recorders[device_type] = self._first("armature_launch_recorder", device_type=device_type)
        return self._recorders[device_type]

    def deciders(self) -> tuple[Decider, ...]:
        """`armature_decide` of each plugin, in the order in which they are asked."""
        return tuple(Decider(impl, self._report) for impl in self._hooks.get("armature_decide", ()))

    def decide(self, subject: Subject) -> Verdict | None:
        """The first verdict that a plugin computes for a subject that no rule covers; None if there is none."""
        return next((verdict for decider in self.deciders() if (verdict := decider(subject)) is not None), None)

    def extend_break(self, frame: FrameView, tracing: Tracing) -> Collection[int]:
        """The positions of the instructions that run as they are along with the next one of a frame, which breaks."""
        return self._first("armature_extend_break", frame=frame, tracing=tracing) or ()

    def observe_compile(self, event: CompileEvent) -> None:
        """Tell the observers of compilations."""
        self._tell("armature_compile_event", event)

    def observe_break(self, event: BreakEvent) -> None:
        """Tell the observers of graph breaks."""
        self._tell("armature_graph_break", event)

    def contests(self) -> Iterator[Contest[Any]]:
        """Keys with several rows, in all tables, with the winner."""
        for registry in self.registries.by_name().values():
            for contest in registry.contests():
                if registry is self.registries.rules and len({r.decision for r in rules_in(contest)}) == 1:
                    continue
                if registry is self.registries.handlers and asked_in_turn(contest):
                    continue
                yield contest
        yield from self._same_under_other_names()

    def _same_under_other_names(self) -> Iterator[Contest[Rule]]:
        """Rules that disagree about one object under different names; their order has decided."""
        named = {plugin.title: plugin for plugin in self.plugins}
        for rules in self.rule_book.disagreements():
            rows = [
                Row(rule.target, rule, named[origin.plugin], origin, (rule.priority, -at, 0))
                for at, (rule, origin) in enumerate(rules)
            ]
            names = " = ".join(dict.fromkeys(name_of(row.subject) for row in rows))
            yield Contest("rule", names, rows[0], tuple(rows[1:]))

    def counts(self, plugin: Plugin) -> Mapping[str, int]:
        """The number of a plugin's rows by table; empty tables are left out."""
        tables = self.registries.by_name()
        found = {name: table.count(plugin) for name, table in tables.items()}
        return {name: count for name, count in found.items() if count}

    def _first(self, hook: str, **facts: object) -> Any:
        """The first answer of the hook; one that raises is reported, and counts as none."""
        for impl in self._hooks.get(hook, ()):
            try:
                found = call(impl, **facts)
            except HookFailed as error:
                self._report(error)
                continue
            if found is not None:
                return found
        return None

    def _holds(self, row: Row[ValueType], obj: object) -> bool:
        try:
            return bool(row.value.match(obj))
        except Exception as error:
            impl = Implementation(row.plugin, "armature_value_types", row.value.match)
            self._report(failed(impl, error))
            return False

    def _tell(self, hook: str, event: object) -> None:
        for impl in self._hooks.get(hook, ()):
            try:
                call(impl, event=event)
            except HookFailed as error:
                self._report(error)
            except RecursionError as error:
                self._report(failed(impl, error))


def _origin_in(registry: Registry[Any], fn: object) -> RuleOrigin | None:
    rows = registry.rows.get(registry.key(fn))
    return rows[0].origin if rows else None


def rules_in(contest: Contest[Rule]) -> Iterator[Rule]:
    """The rules of a contest."""
    yield contest.winner.value
    yield from (row.value for row in contest.losers)


def asked_in_turn(contest: Contest[Handler]) -> bool:
    """Whether the function has a fallback handler, which is asked when its other handlers decline a call."""
    return not contest.tie and all(row.value.complete for row in contest.losers)


@attrs.frozen
class RowKind:
    """How a hook's results become rows. `function`: the code behind a row, None if it has none."""

    table: str
    type: type
    subjects: Callable[[Any], Sequence[object]]
    function: Callable[[Any], object] = lambda row: None


def of_operator(row: Operator) -> object:
    """The first function of a row that has several."""
    return row.function or row.relaid or row.takes or row.understood


def of_signature(row: Signature) -> object:
    """The function of a row, unless it is about a module."""
    return None if isinstance(row.fn, ModuleType) else row.fn


OVERLOAD = torch._ops.OpOverload
ROW_HOOKS: Mapping[str, RowKind] = {
    "armature_rules": RowKind("rules", Rule, lambda r: [(r.target, r.requires)]),
    "armature_handlers": RowKind("handlers", Handler, lambda r: r.targets, lambda r: inspect.unwrap(r.fn)),
    "armature_value_types": RowKind("value_types", ValueType, lambda r: [r.match], lambda r: r.build),
    "armature_polyfills": RowKind("polyfills", Polyfill, lambda r: [r.original], lambda r: r.replacement),
    "armature_signatures": RowKind("signatures", Signature, lambda r: [r.fn], of_signature),
    "armature_break_types": RowKind("break_types", BreakType, lambda r: [r.id]),
    "armature_decompositions": RowKind("decompositions", Decomposition, lambda r: [r.op], lambda r: r.fn),
    "armature_lowerings": RowKind("lowerings", Lowering, lambda r: [r.op], lambda r: r.fn),
    "armature_operators": RowKind("operators", Operator, lambda r: [r.op], of_operator),
    "armature_functions": RowKind("functions", Function, lambda r: [r.target], lambda r: r.raises or r.as_captured),
    "armature_passes": RowKind("passes", Pass, lambda r: [r.name], lambda r: r.run),
    "armature_fusion_rules": RowKind("fusion_rules", FusionRule, lambda r: [r.name], lambda r: r.allows or r.saves),
    "armature_graph_backends": RowKind("graph_backends", tuple, lambda r: [r[0]], lambda r: r[1]),
}


def wrong_with(kind: RowKind, row: Any) -> str:
    """Why a row does not fit its table, "" if it does."""
    if not isinstance(row, kind.type):
        return f"expected {kind.type.__name__}"
    if isinstance(row, (Decomposition, Lowering, Operator)) and not isinstance(row.op, OVERLOAD):
        return f"`op` is {name_of(row.op)}, not an overload such as torch.ops.aten.add.Tensor"
    if isinstance(row, Function) and not (callable(row.target) or isinstance(row.target, re.Pattern)):
        return f"`target` is {name_of(row.target)}, neither a function nor a pattern"
    function = kind.function(row)
    if function is not None and not callable(function):
        return f"{function!r} is not callable"
    # An empty list of targets is fine: the function may not exist in the installed torch.
    if isinstance(row, Handler) and not all(callable(target) for target in row.targets):
        return "a target is not callable"
    return ""


@attrs.define(eq=False)
class Builder:
    """Collects the rows of all hooks into registries, and reports invalid ones."""

    report: Report
    registries: Registries = attrs.field(factory=Registries)
    rules: list[tuple[Rule | RuleTable, RuleOrigin]] = attrs.field(factory=list)

    def collect(self, impl: Implementation, kind: RowKind) -> None:
        """Take the rows of one hook of one plugin; an invalid row is reported and left out, the others stay."""
        try:
            rows = rows_of(impl)
        except PluginError as error:
            self.report(error)
            return
        for row in rows:
            if kind.type is Rule and isinstance(row, RuleTable):
                self.take_table(impl, row)
            elif problem := wrong_with(kind, row):
                self.report(invalid(impl, row, problem))
            else:
                self.take(impl, kind, row)

    def take(self, impl: Implementation, kind: RowKind, row: Any) -> None:
        """Put one valid row in its table."""
        registry: Registry[Any] = getattr(self.registries, kind.table)
        origin = self.origin_of_row(impl, kind, row)
        value = row[1] if kind.type is tuple else row
        precedence = impl.precedence(getattr(row, "priority", 0))
        for subject in kind.subjects(row):
            registry.add(Row(subject, value, impl.plugin, origin, precedence))
        if kind.type is Rule:
            self.rules.append((row, origin))

    def take_table(self, impl: Implementation, table: RuleTable) -> None:
        """Add a table of rules as one entry."""
        stands = table.file and table.line
        origin = RuleOrigin(impl.plugin.title, table.file, table.line) if stands else impl.origin
        row = Row(table.names, table, impl.plugin, origin, impl.precedence(table.priority))
        self.registries.rules.tables.append(row)
        self.rules.append((table, origin))

    def origin_of_row(self, impl: Implementation, kind: RowKind, row: Any) -> RuleOrigin:
        """The line of the row's own function, else the one that a rule names, else that of the hook."""
        if isinstance(row, Rule) and row.origin and row.origin.line:
            own = row.origin.plugin == impl.plugin.title
            return row.origin if own else attrs.evolve(row.origin, plugin=impl.plugin.title)
        found = origin_of(impl.plugin, kind.function(row))
        return found if found.line else impl.origin


def report_ties(tables: Tables, report: Report) -> None:
    """Report keys that two rows claim with equal precedence."""
    hooks = {getattr(tables.registries, kind.table).name: hook for hook, kind in ROW_HOOKS.items()}
    for contest in tables.contests():
        if contest.tie:
            first, second = contest.winner, contest.losers[0]
            facts = first.plugin.facts | {"hook": hooks[contest.table], "table": contest.table, "key": contest.key}
            report(DuplicateRow(first=first.place, second=second.place, **facts))


def build(
    epoch: int, plugins: Sequence[Plugin], hooks: Mapping[str, Sequence[Implementation]], report: Report, late: Report
) -> Tables:
    """Collect the rows of all plugins. `report` is called with problems found now, `late` with problems of later
    answers."""
    builder = Builder(report)
    for hook, kind in ROW_HOOKS.items():
        for impl in hooks.get(hook, ()):
            builder.collect(impl, kind)
    registries = builder.registries
    types = list(registries.value_types.winners())
    passes = list(registries.passes.winners())
    predicates = [row for row in types if not isinstance(row.value.match, type)]
    tables = Tables(
        epoch=epoch,
        plugins=tuple(plugins),
        registries=registries,
        rules=tuple(builder.rules),
        handlers=IdentityMap(registries.handlers),
        decompositions=by_operator(registries.decompositions),
        lowerings=by_operator(registries.lowerings),
        operators=by_operator(registries.operators),
        fake_rules=fake_rules(row.value for row in registries.operators.all_rows()),
        functions=Functions.of(row.value for row in registries.functions.winners()),
        fusion_rules=tuple(row.value for row in registries.fusion_rules.winners()),
        graph_backends=MappingProxyType({str(r.subject): r.value for r in registries.graph_backends.winners()}),
        handler_index={key: tuple(row.value for row in held) for key, held in registries.handlers.rows.items()},
        polyfill_index={key: held[0].value for key, held in registries.polyfills.rows.items()},
        signature_index={key: held[0].value for key, held in registries.signatures.rows.items()},
        exact_types={row.value.match: row.value for row in types if isinstance(row.value.match, type)},
        predicates=tuple(sorted(predicates, key=lambda row: row.precedence, reverse=True)),
        ordered={stage: in_order(stage, [r for r in passes if r.value.stage == stage], report) for stage in STAGES},
        hooks={hook: tuple(impls) for hook, impls in hooks.items()},
        report=late,
    )
    report_ties(tables, report)
    return tables


def by_operator(registry: Registry[T]) -> Mapping[torch._ops.OpOverload, T]:
    """The winning row, by operator."""
    return MappingProxyType({row.subject: row.value for row in registry.winners() if isinstance(row.subject, OVERLOAD)})
