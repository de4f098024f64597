"""Random programs: Python functions that hypothesis writes as source text, and what a call of one gives.

A program mixes control flow, containers, closures, classes, exceptions, mutation and tensor operators, and, where
asked, statements that end a graph. Statements and expressions are templates; `<num>` and the like stand for a part of
that kind.
"""

from __future__ import annotations

import contextlib
import io
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from hypothesis import strategies as st

from armature.testing.tracing import chain, comparable

Lines = list[str]
PLACEHOLDER = re.compile(r"<(\w+)>")

ATOMS: Mapping[str, tuple[str, ...]] = {
    "num": (
        "n", "m", "k", "i", "0", "1", "2", "3", "-1", "len(items)", "box.value", "x.shape[0]", "x.size(1)", "x.dim()",
        "counter()", "STATE['total']", "(items or [4])[-1]", "table.get('k')", "table['k']", "items[-1]", "len(nest)",
        "x.numel() // 4",
    ),
    "ten": ("x", "y", "z", "(x * 2)", "(y + 1)", "box.held", "tensors[0]", "x.clone()", "torch.ones(3, 4)"),
    "test": ("n > m", "m % 2 == 0", "items", "not n", "x.shape[0] > n", "x is y", "k", "box", "'z' in table", "True"),
    "text": ("text", "'a'", "f'{n}'", "str(m)", "'ab'[0]", "type(items).__name__"),
    "seq": ("items", "[1, 2]", "(n, m)", "range(3)", "list(table.values())", "[]", "nest[0]"),
    "nv": ("n", "m", "k"),
    "tv": ("x", "y", "z"),
    "error": ("ValueError", "KeyError", "CustomError", "ZeroDivisionError", "(LookupError, TypeError)", "Exception"),
}  # fmt: skip

COMPOUND: Mapping[str, tuple[str, ...]] = {
    "num": (
        "<num> + <num>", "<num> - <num>", "<num> * <num> % 97", "-<num>", "<num> // 2", "abs(<num>)",
        "max(<num>, <num>)", "min(<num>, 5)", "sum(<seq>)", "len(<seq>)", "int(<test>)", "(<num> if <test> else <num>)",
        "helper(<num>)", "helper(<num>, by=<num>)", "(lambda a, b=<num>: a - b)(<num>)", "table.get(<text>, <num>)",
        "items.count(<num>)", "[*<seq>, 9][0]", "next(iter(<seq>), <num>)", "len(<text>)",
        "box.scaled(<num>)", "box.double", "sum(v for v in <seq> if v)", "divmod(<num>, 3)[1]", "<num> & 7",
        "6 // (<num> % 3 + 1)", "items[<num> % 3]", "recurse(<num> % 4)", "sum(counting(<num> % 4))",
        "max(<seq>)", "min(<seq>)", "<num> % 3", "round(<num> / 4)",
        "<num> ** 2 % 31", "functools.reduce(lambda a, b: a + b, <seq>, 0)",
    ),
    "ten": (
        "<ten> + <num>", "<ten> * <num>", "<ten> - <ten>", "<ten> * <ten>", "<ten>.relu()", "torch.sin(<ten>)",
        "<ten>.t().t()", "<ten>[:, :2].repeat(1, 2)", "torch.where(<ten> > 0, <ten>, y)", "<ten>.view(3, 4)",
        "<ten>.sum(0, keepdim=True) + y", "helper(<ten>)", "torch.cat([<ten>, y], 0)[:3]", "sum([<ten>, <ten>])",
        "<ten>.clamp(-n - 5, 5)", "<ten> / 3", "(<ten> if <test> else <ten>)", "<ten>.flip(0)", "-<ten>",
        "torch.stack([<ten>, <ten>]).amax(0)", "<ten>.masked_fill(<ten> > 1, <num>)", "apply(torch.abs, <ten>)",
        "<ten>.double().float()", "<ten>.reshape(-1)[:12].reshape(3, 4)", "<ten>.detach()", "(<ten> > <num>).float()",
        "torch.nn.functional.softmax(<ten>, dim=<num> % 2)", "<ten> @ torch.ones(4, 4)", "box.shifted(<ten>)",
        "<ten>.new_zeros(<ten>.shape) + <num>", "<ten>[torch.tensor([0, 2, 1])]", "<ten>.unbind(0)[0] + x",
        "functools.partial(helper, by=<num>)(<ten>)", "<ten>.mean() * x", "torch.full_like(<ten>, <num>)",
    ),
    "test": (
        "<num> > <num>", "<num> in <seq>", "not <test>", "<test> and <test>", "<test> or <test>", "<num> < <num> < 5",
        "<text> == <text>", "isinstance(box, Box)", "any(v > 1 for v in <seq>)", "all(<seq>)", "<ten> is x",
        "<seq> == <seq>", "hasattr(box, <text>)", "<ten>.dtype is torch.float32", "<ten>.requires_grad",
        "callable(helper)", "<num> != <num>", "bool(<num>)", "<text> in table", "items is nest[0]",
    ),
    "text": (
        "<text> + <text>", "'{}-{:>3}'.format(<num>, <num>)", "<text> * (<num> % 3)", "'-'.join(str(v) for v in <seq>)",
        "<text>.upper()", "repr(<num>)", "'%s' % <num>", "(<text> if <test> else <text>)",
    ),
    "seq": (
        "[v + 1 for v in <seq>]", "<seq>[:2]", "[<num>, *<seq>]", "sorted(<seq>)", "list(map(abs, <seq>))",
        "[a * b for a, b in zip(<seq>, <seq>)]", "list(reversed(<seq>))", "[v for v in <seq> if v % 2]",
        "(*<seq>, <num>)", "list(counting(<num> % 3))", "[p for p, _ in enumerate(<seq>)]",
        "list(itertools.chain(<seq>, <seq>))", "list(itertools.accumulate(<seq>))", "list({v: 1 for v in <seq>})",
    ),
}  # fmt: skip

SIMPLE = (
    "<nv> = <num>", "<nv> = <num>", "<tv> = <ten>", "<tv> = <ten>", "<nv> += <num>", "<nv> -= 1", "text = <text>",
    "items.append(<num>)", "items.extend(<seq>)", "items.insert(0, <num>)", "items = list(<seq>)", "items[0] = <num>",
    "items.reverse()", "items.sort()", "items and items.pop()", "items += [<num>]", "del items[:1]",
    "items[1:] = <seq>", "items = [v + 1 for v in items]", "first, *rest = items; items = rest + [first]",
    "table[<text>] = <num>", "table['k'] += <num>", "table.pop(<text>, None)", "table.update(z=<num>)",
    "table = {**table, 'w': <num>}", "table.setdefault(<text>, <num>)", "del table['k']",
    "seen.add(<num>)", "seen.discard(<num>)", "seen |= {<num>}", "nest[0].append(<num>)", "nest.append(items)",
    "nest = [list(part) for part in nest]", "tensors.append(<ten>)", "tensors[0] = <ten>", "tensors.reverse()",
    "<tv> += <num>", "<tv>[0] = <num>", "<tv>.mul_(<num> % 3)", "<tv>[:, 1].add_(1)", "<tv>[<num> % 3, 0] = <num>",
    "<tv>.copy_(<ten>)", "torch.add(<ten>, 1, out=z)", "<tv>.data.mul_(2)", "<tv>, z = z, <tv>",
    "box.value = <num>", "box.value += <num>", "box.held = <ten>", "box.extra = <num>", "box.double = <num>",
    "box.items = items", "n, m = m, n", "first, *items = [<num>, *items]", "(n, m), k = (<num>, <num>), <num>",
    "assert <test> or n, f'{n}'", "assert n == n, f'{x}'", "STATE['total'] = <num>", "counter()", "bump(<num>)",
    "k = <num> if <test> else <num>", "helper = (lambda v, by=<num>: v + by)", "items = items or [<num>]",
    "add_to_total(<num>)", "pair = (<num>, <ten>); n, z = pair", "k = [fn(<num>) for fn in later][-1]",
    "later.append(lambda v, n=n: v + n + m)", "del text; text = <text>", "text = f'{n}-{m}'; n = len(text)",
    "note = Box(<num>); k = note.scaled(2)",
    "if (k := <num>) > 1: n = k", "if <test>: raise CustomError(<num>)", "pass",
)  # fmt: skip

# Statements at which a graph has to end.
BREAKING = (
    "log(<num>)", "x.tag = <num>", "log(<ten>.sum().item() > 0)", "k = int((<ten> > 0).sum())",
    "k = len((<ten>).tolist())",
    "if <ten>.sum() > <num>: n += 1", "while x.abs().max() > 5: x = x / 2", "k = bool((<ten> > 9).any())",
    "[log(v) for v in <seq>]", "helper(log(<num>) or <num>)",
    "print(<num>, m, len(items))", "print(f'{<ten>.sum():.2f}', n)", "n = int(<ten>[0, 0] > 0) + <num>",
    "<tv> = loud(<ten>)", "<nv> = loud(<num>)", "items = [loud(v) for v in <seq>]", "assert <ten>.sum() < 1e9",
    "n += int(<ten>.sum().item()) % 3", "loud(box)", "x = x if x.sum() > <num> else y",
    "y = (loud(x) + y, print(<num>))[0]", "print(sorted(k for k in locals() if k in 'nmxy'))",
    "m = sum(map(loud, [m, <num>]))", "box.value = loud(box.value) + <num>; loud(box.value)",
    "n = noisy_counter() + <num>", "text = f'{x}'; x += 1; print(len(text))", "print(*[calls, <num>], sep='-')",
    "n = max(items, key=loud) if items else n", "x = (x * 2 if loud(<num>) else x) + loud(<ten>)",
    "it = iter(<seq>); print(next(it, 0)); n = sum(it)",
)  # fmt: skip

HEAD = """\
def program(x, y, n, m, items, table, box):
    calls = 0
    i = k = 1
    z = x.clone()
    text, seen, nest, tensors, later = 'q', {1, 3}, [items, [5]], [y, x], [abs]
    def helper(v, by=2):
        return v * by
    def counter(step=1):
        nonlocal calls
        calls += step
        return calls
    def bump(step):
        nonlocal n
        n = n + step
        STATE['total'] += 1
    def add_to_total(step):
        global TOTAL
        TOTAL = TOTAL + step
    def counting(count):
        for position in range(count):
            yield position + calls
    def recurse(depth):
        return depth if depth <= 0 else recurse(depth - 1) + 1
    def apply(fn, *args, **named):
        return fn(*args, **named)
""".rstrip().split("\n")
BREAKING_HEAD = """\
    def loud(v):
        w = [v]
        print(type(v).__name__)
        return w[0]
    def noisy_counter():
        nonlocal calls
        calls += 1
        print(calls)
        calls += 1
        return calls
""".rstrip().split("\n")
TAIL = (
    "    return x, y, z, n, m, k, items, table, calls, text, len(seen), 3 in seen, nest, tensors, {'n': n, 'box': box}"
)


def part(kind: str) -> st.SearchStrategy[str]:
    """An expression of a kind, in brackets where it is more than a name or number."""
    atoms = st.sampled_from(ATOMS[kind])
    if kind not in COMPOUND:
        return atoms
    whole = st.sampled_from(COMPOUND[kind]).flatmap(filled)
    return st.one_of(atoms, atoms, whole.map(lambda text: f"({text})"))


def filled(template: str) -> st.SearchStrategy[str]:
    """A template with an expression in each of its places."""
    kinds = PLACEHOLDER.findall(template)
    if not kinds:
        return st.just(template)
    return st.tuples(*(PARTS[kind] for kind in kinds)).map(lambda found: substitute(template, found))


def substitute(template: str, found: tuple[str, ...]) -> str:
    """The parts in the places of a template."""
    given = iter(found)
    return PLACEHOLDER.sub(lambda _: next(given), template)


PARTS: dict[str, st.SearchStrategy[str]] = {kind: st.deferred(lambda kind=kind: part(kind)) for kind in ATOMS}  # type: ignore[misc]

# Compound statements: `<body>` on a line of its own stands for statements, indented as the line is.
BLOCKS = (
    "if <test>:\n    <body>\nelse:\n    <body>",
    "if <test>:\n    <body>\nelif <test>:\n    <body>",
    "for i in range(<num> % 4):\n    <body>\n    if <test>:\n        break\nelse:\n    <body>",
    "for i in [*<seq>][:3]:\n    <body>\n    if <test>:\n        continue\n    <body>",
    "for key, k in list(table.items()):\n    <body>",
    "for i, row in enumerate(x):\n    z = z + row\n    <body>",
    "j = 0\nwhile j < 3:\n    j += 1\n    <body>\n    if <test>:\n        break",
    "try:\n    <body>\n    <raiser>\nexcept <error> as error:\n    <body>\n    k = len(error.args)\n"
    "finally:\n    <body>",
    "try:\n    <body>\nexcept <error>:\n    <body>\nelse:\n    <body>",
    "try:\n    <body>\nexcept <error> as error:\n    raise CustomError(<num>) from error",
    "try:\n    <body>\n    <raiser>\nexcept <error>:\n    <body>\n    raise",
    "for i in range(2):\n    try:\n        <body>\n        if <test>:\n            continue\n        <raiser>\n"
    "    except <error>:\n        break\n    finally:\n        <body>",
    "with torch.no_grad():\n    <body>",
    "with Scope(box, <num>) as k:\n    <body>\n    <raiser>",
    "with contextlib.suppress(<error>):\n    <body>\n    <raiser>",
    "with Managed(items):\n    <body>\n    <raiser>",
    "def made(a, *rest, b=<num>, **named):\n    nonlocal n\n    <inner>\n    return a + b + len(rest) + len(named)\n"
    "k = made(<num>, *items[:2], c=1)",
    "def made(x, items):\n    n = m = <num>\n    <inner>\n    return x\n<tv> = made(<ten>, items)",
    "match <seq>:\n    case [a, *others]:\n        <body>\n    case _:\n        <body>",
    "match n:\n    case 0 | 1:\n        <body>\n    case v if v > 3:\n        <body>",
    "if <test>:\n    return x, n, items",
    "for i in counting(<num> % 4):\n    <body>",
)
# Compound statements that end a graph in the middle of something.
BREAKING_BLOCKS = (
    "if x.sum() > <num>:\n    <body>\nelse:\n    <body>",
    "for row in x:\n    print(row.shape)\n    <body>",
    "j = 0\nwhile x.sum() < 50 and j < 2:\n    j += 1\n    <body>",
    "try:\n    <body>\n    int(str(<num>) + 'x')\nexcept ValueError:\n    <body>",
)
RAISERS = ("items[99]", "table['none']", "1 // 0", "n + 0", "raise ValueError(n)", "raise CustomError(<num>)", "pass")
INNER = ("n += <num>", "items.append(<num>)", "x = x * 2", "if <test>: return a", "n = n - 1", "x.add_(1)", "pass")
SLOT = re.compile(r"^( *)<(body|raiser|inner)>$", re.MULTILINE)


def block(template: str, inner: st.SearchStrategy[Lines]) -> st.SearchStrategy[Lines]:
    """A compound statement around statements."""
    several = st.lists(inner, min_size=1, max_size=2).map(lambda parts: [line for lines in parts for line in lines])
    one = {
        "body": several,
        "raiser": st.sampled_from(RAISERS).flatmap(filled).map(lambda line: [line]),
        "inner": st.sampled_from(INNER if "made(a" in template else INNER[:2]).flatmap(filled).map(lambda line: [line]),
    }
    slots = [match[1] for match in SLOT.findall(template)]
    plain = SLOT.sub(lambda match: f"{match[1]}@", template)
    return st.tuples(filled(plain), st.tuples(*(one[slot] for slot in slots))).map(lambda p: nested(p[0], p[1]))


def nested(text: str, bodies: tuple[Lines, ...]) -> Lines:
    """The lines of a compound statement, its bodies in the places marked by `@`."""
    given = iter(bodies)
    found: Lines = []
    for line in text.split("\n"):
        depth = line[: len(line) - len(line.lstrip())]
        found += [depth + inner for inner in next(given)] if line.strip() == "@" else [line]
    return found


def simple(templates: tuple[str, ...]) -> st.SearchStrategy[Lines]:
    """A statement of one line."""
    return st.sampled_from(templates).flatmap(filled).map(lambda line: [line])


def statements(templates: tuple[str, ...], blocks: tuple[str, ...]) -> st.SearchStrategy[Lines]:
    """A statement, with others in it to some depth."""
    return st.recursive(
        simple(templates), lambda inner: st.sampled_from(blocks).flatmap(lambda t: block(t, inner)), max_leaves=6
    )


WHOLE = statements(SIMPLE, BLOCKS)
BROKEN = statements((*SIMPLE, *BREAKING, *BREAKING), (*BLOCKS, *BREAKING_BLOCKS, *BREAKING_BLOCKS))


def sources(*, breaks: bool = False) -> st.SearchStrategy[str]:
    """Source texts of functions `program(x, y, n, m, items, table, box)`. breaks: with statements that end a graph."""
    head = [*HEAD, *BREAKING_HEAD] if breaks else HEAD
    return st.lists(BROKEN if breaks else WHOLE, min_size=1, max_size=7).map(lambda parts: text_of(head, parts))


def text_of(head: Lines, parts: list[Lines]) -> str:
    """The source of a program with these statements."""
    return "\n".join([*head, *("    " + line for lines in parts for line in lines), TAIL])


PRELUDE = """\
import contextlib, functools, itertools, torch
TOTAL = 0
STATE = {'total': 0}
LOG = []
def log(value):
    LOG.append(value)
class CustomError(Exception):
    pass
class Box:
    size = 3
    def __init__(self, value):
        self.value = value
        self.held = torch.full((3, 4), 0.5)
    @property
    def double(self):
        return self.value * 2
    @double.setter
    def double(self, value):
        self.value = value // 2
    def scaled(self, by):
        return self.value * by + self.size
    def shifted(self, tensor):
        self.value += 1
        return tensor + self.held
class Scope:
    def __init__(self, box, value):
        self.box, self.value = box, value
    def __enter__(self):
        self.box.value += 1
        return self.value
    def __exit__(self, kind, error, trace):
        self.box.value -= 1
        return kind is not None and issubclass(kind, LookupError)
class Managed:
    def __init__(self, items):
        self.items = items
    def __enter__(self):
        self.items.append(1)
        return self
    def __exit__(self, kind, error, trace):
        self.items.append(2 if kind is None else 3)
        return kind is ZeroDivisionError
"""
FILE = "<generated>"


class Program:
    """A program of a source text, in a module of its own."""

    def __init__(self, source: str, wrap: Callable[[Any], Any] = lambda fn: fn) -> None:
        self.source = source
        self.space: dict[str, Any] = {"__name__": "generated"}
        exec(compile(PRELUDE + source, FILE, "exec"), self.space)
        self.fn = self.space["program"]
        self.run = wrap(self.fn)

    def arguments(self, variant: int = 0) -> tuple[Any, ...]:
        """Fresh arguments; those of another variant are of the same kinds."""
        x = torch.linspace(-2.0, 2.0, 12).reshape(3, 4)
        box = self.space["Box"](4 + variant)
        if variant == 2:
            return x, x, 0, 3, [], {"k": 1}, box
        return x, x.flip(0).contiguous(), 2, 3 - variant, [1, 2], {"k": 1}, box

    def fresh(self, variant: int = 0) -> tuple[Any, ...]:
        """Fresh arguments, with the globals of the program as they were at first."""
        self.space.update(TOTAL=0, LOG=[])
        self.space["STATE"].update(total=0)
        return self.arguments(variant)

    def outcome(self, variant: int = 0, run: Callable[..., Any] | None = None) -> Any:
        """What a call gives (an exception, its causes and lines, where it raises), prints, and leaves behind."""
        args = self.fresh(variant)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                result = (self.run if run is None else run)(*args)
            except Exception as error:
                result = (*chain(error), *lines_of(error))
        left = {name: self.space[name] for name in ("TOTAL", "STATE", "LOG")}
        return {
            "result": comparable(result),
            "args": comparable(args),
            "left": comparable(left),
            "printed": printed.getvalue(),
            "grad": torch.is_grad_enabled(),
            "identities": list(identities((result, args))),
        }


def lines_of(error: BaseException) -> Iterator[str]:
    """The lines of an exception's traceback in the program."""
    for line in traceback.extract_tb(error.__traceback__):
        if line.filename == FILE:
            yield f"{line.name}:{line.lineno}"


def identities(value: Any) -> Iterator[int]:
    """Which mutable objects of a nest are the same, and which tensors share memory: a number for each object met."""
    numbers: dict[tuple[str, int], int] = {}
    stack, met = [value], set()
    while stack:
        obj = stack.pop()
        if isinstance(obj, torch.Tensor):
            yield numbers.setdefault(("storage", obj.untyped_storage()._cdata), len(numbers))
        if isinstance(obj, (torch.Tensor, list, dict)) or hasattr(obj, "__dict__"):
            yield numbers.setdefault(("object", id(obj)), len(numbers))
        if id(obj) in met:
            continue
        met.add(id(obj))
        inner = obj.values() if isinstance(obj, dict) else obj if isinstance(obj, (list, tuple)) else ()
        stack += [*inner, *(vars(obj).values() if hasattr(obj, "__dict__") and not isinstance(obj, type) else ())]
