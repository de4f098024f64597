"""The kinds of sources: paths to values, starting at the frame's locals or globals.

Each kind defines how it is read in a frame, written as Python text, reached in the guard tree and loaded by the
generated code (`frame/source.py` has the readers), so that a new kind is one class here.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from types import CellType
from typing import Any, ClassVar

import attrs
import torch

from armature.frame.keys import WeakKey, key_text, load_key, real_key
from armature.frame.lookups import dict_path, has_instance_dict
from armature.frame.source import Expressions, Loader, Reach, Resolver
from armature.frame.source import Source as Source
from armature.introspection import MISSING, dict_of, label_of
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.guard_tree import Manager, example
from armature.torch_abi.overrides import mode_at, mode_count
from armature.torch_abi.symbols import NAMESPACE

# Plain instance attributes of nn.Module: reading them as attributes is faster than through `__dict__`.
MODULE_DICTS = frozenset({"_modules", "_parameters", "_buffers"})


def load_result(out: Loader, fn: Callable[..., Any], base: Source) -> None:
    """Push the result of a function of armature's own or in C, applied to the object at a source."""
    code = getattr(fn, "__code__", None) or getattr(type(fn).__call__, "__code__", None)
    if code is not None:
        skip_code(code, below=True)  # a plugin's would be compiled like the program's
    out.null_function(fn)
    out.load_source(base)
    out.call(1)


@attrs.frozen(cache_hash=True)
class LocalSource(Source):
    """A local variable or argument. cell: it is a cell or free variable, and the source means the cell's contents."""

    name: str
    cell: bool = False
    loaded_at_once: ClassVar[bool] = True

    @property
    def expr(self) -> str:
        return self.name

    def read(self, frame: Resolver) -> Any:
        value = frame.request.locals[self.name]
        if type(value) is CellType and self.name in frame.request.code.co_freevars:
            return value.cell_contents
        return value

    def text(self, texts: Expressions) -> str:
        return f"L[{self.name!r}]"

    def manager(self, reach: Reach) -> Manager:
        # torch opens cells itself, so a variable and a cell are reached the same way.
        key = (self.name, reach.indices[self.name])
        return reach.root.framelocals_manager(key, self.expr, example(reach.resolver.value(self)), None)

    def load(self, out: Loader) -> None:
        variable = out.variable(self.name)
        out.emit("LOAD_FAST" if isinstance(variable, str) else "LOAD_DEREF", variable)


@attrs.frozen(cache_hash=True)
class GlobalSource(Source):
    """A global of the frame being compiled."""

    name: str
    of_call: ClassVar[bool] = False

    @property
    def expr(self) -> str:
        return f"globals()[{self.name!r}]"

    def read(self, frame: Resolver) -> Any:
        return frame.request.globals[self.name]

    def text(self, texts: Expressions) -> str:
        return f"G[{self.name!r}]"

    def manager(self, reach: Reach) -> Manager:
        return reach.globals().dict_getitem_manager(self.name, self.expr, example(reach.resolver.value(self)), None)

    def load(self, out: Loader) -> None:
        out.emit("LOAD_GLOBAL", (False, self.name))


@attrs.frozen(cache_hash=True)
class ObjectSource(Source):
    """An object with no other path (the globals of an inlined function, a module in sys.modules), kept alive by the
    compiled code. It needs no guard itself; attributes and items below it do."""

    obj: object = attrs.field(eq=id, hash=False)
    label: str
    loaded_at_once: ClassVar[bool] = True
    is_fixed: ClassVar[bool] = True
    of_call: ClassVar[bool] = False

    @property
    def expr(self) -> str:
        return self.label

    def read(self, frame: Resolver) -> Any:
        return self.obj

    def text(self, texts: Expressions) -> str:
        return texts.name(self.obj)

    def manager(self, reach: Reach) -> Manager:
        if self.obj is reach.request.globals:
            return reach.globals()
        return reach.anchored(id(self.obj), self.obj, self.expr)

    def load(self, out: Loader) -> None:
        out.constant(self.obj)


def object_source(obj: object, label: str = "") -> ObjectSource:
    """A source for an object that the compiled code keeps alive. label: its name in guards and reports."""
    return ObjectSource(obj, label or label_of(obj))


@attrs.frozen(cache_hash=True)
class AttrSource(Source):
    """`base.name` by getattr."""

    base: Source
    name: str
    of_call: ClassVar[bool] = False

    @functools.cached_property
    def expr(self) -> str:
        return f"{self.base.expr}.{self.name}"

    def read(self, frame: Resolver) -> Any:
        return getattr(frame.value(self.base), self.name)

    def text(self, texts: Expressions) -> str:
        return f"{texts.of(self.base)}.{self.name}"

    def manager(self, reach: Reach) -> Manager:
        value = example(reach.resolver.value(self))
        path = dict_path(reach.resolver.value(self.base), self.name)
        manager = reach.manager(self.base)
        if path is None:
            return manager.getattr_manager(self.name, self.expr, value, None)
        table = DictOfSource(self.base)
        manager = reach.manager(table)
        for key in path[:-1]:
            manager = reach.manager(ItemSource(table, key))
        return manager.dict_getitem_manager(path[-1], self.expr, value, None)

    def load(self, out: Loader) -> None:
        out.load_source(self.base)
        out.attribute(self.name)


@attrs.frozen(cache_hash=True)
class DictOfSource(Source):
    """`base.__dict__`, read without running user code."""

    base: Source
    of_call: ClassVar[bool] = False

    @functools.cached_property
    def expr(self) -> str:
        return f"{self.base.expr}.__dict__"

    def read(self, frame: Resolver) -> Any:
        return dict_of(frame.value(self.base))

    def text(self, texts: Expressions) -> str:
        return f"{texts.of(self.base)}.__dict__"

    def manager(self, reach: Reach) -> Manager:
        if has_instance_dict(reach.resolver.value(self.base)):
            return reach.manager(self.base).get_generic_dict_manager(self.expr, None, None)
        return reach.manager(self.base).getattr_manager("__dict__", self.expr, None, None)

    def load(self, out: Loader) -> None:
        if out.asks(self.base):
            load_result(out, dict_of, self.base)
            return
        out.load_source(self.base)
        out.attribute("__dict__")


@attrs.frozen(cache_hash=True)
class TypeOfSource(Source):
    """`type(base)`."""

    base: Source

    @property
    def expr(self) -> str:
        return f"type({self.base.expr})"

    def read(self, frame: Resolver) -> Any:
        return type(frame.value(self.base))

    def text(self, texts: Expressions) -> str:
        return f"type({texts.of(self.base)})"

    def manager(self, reach: Reach) -> Manager:
        return reach.manager(self.base).type_manager(self.expr, reach.resolver.value(self), None)

    def load(self, out: Loader) -> None:
        load_result(out, type, self.base)


def item_manager(reach: Reach, source: ItemSource | MemberSource) -> Manager:
    """The manager of an item: of a dict or a sequence by its own methods, else by `__getitem__`."""
    base, value = reach.resolver.value(source.base), example(reach.resolver.value(source))
    manager, key = reach.manager(source.base), source.key
    if isinstance(key, WeakKey):
        return manager.lambda_manager(item_getter(key), source.expr, value, None)
    if issubclass(type(base), dict):
        return manager.dict_getitem_manager(key, source.expr, value, None)
    if issubclass(type(base), (list, tuple)) and isinstance(key, int):
        position = key if key >= 0 else key + len(base)
        if issubclass(type(base), list):
            return manager.list_getitem_manager(position, source.expr, value, None)
        return manager.tuple_getitem_manager(position, source.expr, value, None)
    return manager.getitem_manager(key, source.expr, value, None)


def item_getter(key: WeakKey) -> Callable[[Any], object]:
    """Reads a dict under a weak key. C++ would compare tensors by their elements."""

    def item(found: Any) -> object:
        held = key()
        return MISSING if held is None else dict.get(found, held, MISSING)

    return item


@attrs.frozen(cache_hash=True)
class ItemSource(Source):
    """`base[key]` for a list, tuple or dict; `key` is an int, a hashable constant, or a `WeakKey`."""

    base: Source
    key: object

    @functools.cached_property
    def expr(self) -> str:
        return f"{self.base.expr}[{self.key!r}]"

    def read(self, frame: Resolver) -> Any:
        return frame.value(self.base)[real_key(self.key)]

    def text(self, texts: Expressions) -> str:
        base = texts.of(self.base)
        return f"{base}[{self.key!r}]" if type(self.key) in (int, str) else f"{base}[{key_text(texts, self.key)}]"

    def manager(self, reach: Reach) -> Manager:
        return item_manager(reach, self)

    def load(self, out: Loader) -> None:
        if isinstance(self.base, DictOfSource) and self.key in MODULE_DICTS:
            out.load_source(self.base.base)
            out.attribute(str(self.key))
            return
        out.load_source(self.base)
        load_key(out, self.key)
        out.emit("BINARY_SUBSCR")


@attrs.frozen(cache_hash=True)
class NumberedSource(Source):
    """`base[str(number)]`: what a list of modules or parameters has under a number, at another source, that varies from
    call to call. Guards on it fail if there is none."""

    base: Source
    number: Source
    of_call: ClassVar[bool] = False

    @property
    def expr(self) -> str:
        return f"{self.base.expr}[str({self.number.expr})]"

    def read(self, frame: Resolver) -> Any:
        return frame.value(self.base)[str(frame.value(self.number))]

    def text(self, texts: Expressions) -> str:
        return f"{texts.of(self.base)}[{texts.name(str)}({texts.of(self.number)})]"

    def manager(self, reach: Reach) -> Manager:
        texts = Expressions(reach.request)
        read = eval(f"lambda L: {texts.of(self)}", texts.namespace)
        return reach.root.lambda_manager(read, self.expr, example(reach.resolver.value(self)), None)

    def load(self, out: Loader) -> None:
        out.load_source(self.base)
        out.null_function(str)
        out.load_source(self.number)
        out.call(1)
        out.emit("BINARY_SUBSCR")


@attrs.frozen(cache_hash=True)
class PartSource(ItemSource):
    """`base[key]` where the program can't write `base`, such as the state of an iterator. words: the text shown to
    users."""

    words: str

    @functools.cached_property
    def expr(self) -> str:
        return self.words


@attrs.frozen(cache_hash=True)
class ReferentSource(Source):
    """`base()` of the weak reference at `base`."""

    base: Source

    @property
    def expr(self) -> str:
        return f"{self.base.expr}()"

    def read(self, frame: Resolver) -> Any:
        return frame.value(self.base)()

    def text(self, texts: Expressions) -> str:
        return f"{texts.of(self.base)}()"

    def manager(self, reach: Reach) -> Manager:
        value = example(reach.resolver.value(self))
        return reach.manager(self.base).weakref_call_manager(self.expr, value, None)

    def load(self, out: Loader) -> None:
        out.function(lambda: out.load_source(self.base))
        out.call(0)


@attrs.frozen(cache_hash=True)
class MemberSource(Source):
    """`kind.__getitem__(base, key)`: an item of an object whose class derives from a builtin container, `kind`, read by
    that container's method even if the class overrides `__getitem__`."""

    base: Source
    kind: Any
    key: object

    @property
    def expr(self) -> str:
        return f"{self.kind.__name__}.__getitem__({self.base.expr}, {self.key!r})"

    def read(self, frame: Resolver) -> Any:
        return self.kind.__getitem__(frame.value(self.base), real_key(self.key))

    def text(self, texts: Expressions) -> str:
        return f"{texts.name(self.kind.__getitem__)}({texts.of(self.base)}, {key_text(texts, self.key)})"

    def manager(self, reach: Reach) -> Manager:
        return item_manager(reach, self)

    def load(self, out: Loader) -> None:
        out.null_function(self.kind.__getitem__)
        out.load_source(self.base)
        load_key(out, self.key)
        out.call(2)


@attrs.frozen(cache_hash=True)
class CellSource(Source):
    """The contents of the cell object at `base` (an element of a function's `__closure__`)."""

    base: Source
    of_call: ClassVar[bool] = False

    @property
    def expr(self) -> str:
        return f"{self.base.expr}.cell_contents"

    def read(self, frame: Resolver) -> Any:
        return frame.value(self.base).cell_contents

    def text(self, texts: Expressions) -> str:
        return f"{texts.of(self.base)}.cell_contents"

    def manager(self, reach: Reach) -> Manager:
        value = example(reach.resolver.value(self))
        return reach.manager(self.base).getattr_manager("cell_contents", self.expr, value, None)

    def load(self, out: Loader) -> None:
        out.load_source(self.base)
        out.attribute("cell_contents")


@attrs.frozen(cache_hash=True)
class ModeSource(Source):
    """The function mode at a position of torch's stack, the outermost first."""

    position: int

    @property
    def expr(self) -> str:
        return f"function_modes()[{self.position}]"

    def read(self, frame: Resolver) -> Any:
        return mode_at(self.position)

    def text(self, texts: Expressions) -> str:
        return f"{texts.name(mode_at)}({self.position})"

    def manager(self, reach: Reach) -> Manager:
        position = self.position

        def read(_: object) -> object:
            return mode_at(position) if position < mode_count() else None

        return reach.anchored("modes", None, "function_modes()").lambda_manager(read, self.expr, None, None)

    def load(self, out: Loader) -> None:
        out.null_function(mode_at)
        out.constant(self.position)
        out.call(1)


@attrs.frozen(cache_hash=True)
class CallSource(Source):
    """`fn(base)`, for a side-effect-free function of armature's own. words: the text shown to users, {} for `base`.
    shares: whether the result is a tensor in the memory of the object at `base`."""

    base: Source
    fn: Any
    words: str
    shares: bool = False

    @property
    def expr(self) -> str:
        return self.words.replace("{}", self.base.expr)

    def read(self, frame: Resolver) -> Any:
        return self.fn(frame.value(self.base))

    def text(self, texts: Expressions) -> str:
        return f"{texts.name(self.fn)}({texts.of(self.base)})"

    def manager(self, reach: Reach) -> Manager:
        value = example(reach.resolver.value(self))
        return reach.manager(self.base).lambda_manager(self.fn, self.expr, value, None)

    def load(self, out: Loader) -> None:
        load_result(out, self.fn, self.base)


@attrs.frozen(cache_hash=True)
class FormulaSource(Source):
    """A number that Python computes from numbers at other sources. words: the expression, with {0} for the first
    number; it may use `symbols.NAMESPACE` and `names`, pairs of a name and an object."""

    words: str
    operands: tuple[Source, ...]
    names: tuple[tuple[str, Any], ...] = ()
    is_computed: ClassVar[bool] = True

    @property
    def expr(self) -> str:
        return f"({self.words.format(*[part.expr for part in self.operands])})"

    def read(self, frame: Resolver) -> Any:
        return self.function()(*map(frame.value, self.operands))

    def text(self, texts: Expressions) -> str:
        return f"{texts.name(self.function())}({', '.join(map(texts.of, self.operands))})"

    def manager(self, reach: Reach) -> Manager:
        value = example(reach.resolver.value(self))
        if len(self.operands) == 1:
            return reach.manager(self.operands[0]).lambda_manager(self.function(), self.expr, value, None)
        texts = Expressions(reach.request)
        read = eval(f"lambda L: {texts.of(self)}", texts.namespace)
        return reach.root.lambda_manager(read, self.expr, value, None)

    def load(self, out: Loader) -> None:
        skip_code((function := self.function()).__code__)
        out.null_function(function)
        for part in self.operands:
            out.load_source(part)
        out.call(len(self.operands))

    def function(self) -> Callable[..., Any]:
        names = [f"n{place}" for place in range(len(self.operands))]
        words = f"lambda {', '.join(names)}: {self.words.format(*names)}"
        made: Callable[..., Any] = eval(words, {**NAMESPACE, **dict(self.names)})
        return made


@attrs.frozen(cache_hash=True)
class CachedCallSource(Source):
    """`base(*args)` for a side-effect-free function of the program that caches its results (`functools.lru_cache`).
    names: the names of the last arguments, which are passed by name. grad: the grad mode for the call; None: the mode
    at the frame's start."""

    base: Source
    args: tuple[Source, ...]
    names: tuple[str, ...] = ()
    grad: bool | None = None

    @property
    def expr(self) -> str:
        return call_text(self.base.expr, [arg.expr for arg in self.args], self.names)

    def read(self, frame: Resolver) -> Any:
        return self.caller()(frame.value(self.base), *map(frame.value, self.args))

    def text(self, texts: Expressions) -> str:
        return self.text_of_call(texts, texts.of(self.base))

    def text_of_call(self, texts: Expressions, function: str) -> str:
        """The call's expression, given the function's."""
        args = [texts.of(arg) for arg in self.args]
        if self.grad is None:
            return call_text(function, args, self.names)
        return call_text(texts.name(self.caller()), [function, *args], ())

    def manager(self, reach: Reach) -> Manager:
        value, texts = example(reach.resolver.value(self)), Expressions(reach.request)
        if all(isinstance(arg, ObjectSource) for arg in self.args):
            read = eval(f"lambda function: {self.text_of_call(texts, 'function')}", texts.namespace)
            return reach.manager(self.base).lambda_manager(read, self.expr, value, None)
        read = eval(f"lambda L: {texts.of(self)}", texts.namespace)
        return reach.root.lambda_manager(read, self.expr, value, None)

    def load(self, out: Loader) -> None:
        out.null_function(self.caller())
        for part in (self.base, *self.args):
            out.load_source(part)
        out.call(len(self.args) + 1)

    def caller(self) -> Callable[..., object]:
        """A function that calls its argument with the source's other arguments."""
        names, grad = self.names, self.grad

        def call(function: Callable[..., object], *args: object) -> object:
            positional = len(args) - len(names)
            named = dict(zip(names, args[positional:], strict=True))
            if grad is None:
                return function(*args[:positional], **named)
            with torch.set_grad_enabled(grad):
                return function(*args[:positional], **named)

        return call if names or grad is not None else operator.call


def call_text(function: str, args: Sequence[str], names: tuple[str, ...]) -> str:
    """The text of a call, from the texts of its parts."""
    positional = len(args) - len(names)
    named = [f"{name}={text}" for name, text in zip(names, args[positional:], strict=True)]
    return f"{function}({', '.join((*args[:positional], *named))})"


@attrs.frozen(cache_hash=True)
class PrecallSource(Source):
    """The result of a call that the compiled code makes before its graph, by number. It does not exist when guards are
    checked, so nothing about it can be guarded."""

    number: int
    loaded_at_once: ClassVar[bool] = True

    @property
    def expr(self) -> str:
        return f"drawn_{self.number}"

    def load(self, out: Loader) -> None:
        out.load_precall(self)


def is_precomputed(source: Source) -> bool:
    """Whether the compiled code itself makes the object there."""
    while isinstance(source, (ItemSource, CallSource)):
        source = source.base
    return isinstance(source, PrecallSource)
