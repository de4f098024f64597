"""What random programs are made of: templates of expressions, statements and blocks, and what stands around them.

`<num>` and the like stand for an expression of that kind, `<var>` for a name of its own. In blocks `<body>` on a line
of its own stands for statements, indented as the line is.
"""

from __future__ import annotations

from collections.abc import Mapping

ATOMS: Mapping[str, tuple[str, ...]] = {
    "num": (
        "n", "m", "k", "i", "0", "1", "2", "3", "-1", "len(items)", "box.value", "x.shape[0]", "x.size(1)", "x.dim()",
        "counter()", "STATE['total']", "(items or [4])[-1]", "table.get('k')", "table['k']", "items[-1]", "len(nest)",
        "x.numel() // 4", "TOTAL", "1.5", "sub.value", "point.a", "queue[0]", "len(tensors)", "Box.made", "slot.a",
    ),
    "ten": (
        "x", "y", "z", "(x * 2)", "(y + 1)", "box.held", "tensors[0]", "x.clone()", "torch.ones(3, 4)", "NET.scale",
        "torch.arange(12.).view(3, 4)", "sub.held",
    ),
    "test": (
        "n > m", "m % 2 == 0", "items", "not n", "x.shape[0] > n", "x is y", "k", "box", "'z' in table", "True",
        "NET.training", "sub", "False",
    ),
    "text": ("text", "'a'", "f'{n}'", "str(m)", "'ab'[0]", "type(items).__name__", "'k'", "f'{m:03d}'", "box.name"),
    "seq": (
        "items", "[1, 2]", "(n, m)", "range(3)", "list(table.values())", "[]", "nest[0]", "sorted(seen)", "queue",
        "sub", "point", "stack", "x.shape",
    ),
    "map": ("table", "{}", "{'k': n}", "counts", "extra", "dict(a=m)", "STATE"),
    "set": ("seen", "{n, m}", "set()", "{1, 2}", "{j for j in items if isinstance(j, int)}"),
    "fn": ("abs", "helper", "twice", "Box.twice", "box.scaled", "operator.neg", "str", "later[-1]", "int", "stepped"),
    "nv": ("n", "m", "k"),
    "tv": ("x", "y", "z"),
    "error": (
        "ValueError", "KeyError", "CustomError", "ZeroDivisionError", "(LookupError, TypeError)", "Exception",
        "CodedError", "AttributeError", "NameError", "(IndexError, ArithmeticError)",
    ),
}  # fmt: skip

COMPOUND: Mapping[str, tuple[str, ...]] = {
    "num": (
        "<num> + <num>", "<num> - <num>", "<num> * <num> % 97", "-<num>", "<num> // 2", "abs(<num>)",
        "max(<num>, <num>)", "min(<num>, 5)", "sum(<seq>)", "len(<seq>)", "int(<test>)",
        "(<num> if <test> else <num>)", "helper(<num>)", "helper(<num>, by=<num>)",
        "(lambda a, b=<num>: a - b)(<num>)", "table.get(<text>, <num>)", "items.count(<num>)", "[*<seq>, 9][0]",
        "next(iter(<seq>), <num>)", "len(<text>)", "box.scaled(<num>)", "box.double", "sum(v for v in <seq> if v)",
        "divmod(<num>, 3)[1]", "<num> & 7", "6 // (<num> % 3 + 1)", "items[<num> % 3]", "recurse(<num> % 4)",
        "sum(counting(<num> % 4))", "max(<seq>)", "min(<seq>)", "<num> % 3", "round(<num> / 4)", "<num> ** 2 % 31",
        "functools.reduce(lambda a, b: a + b, <seq>, 0)", "<fn>(<num>)", "apply(<fn>, <num>)", "star(<num>, *<seq>)",
        "star(*<seq>, b=<num>)", "named(a=<num>, **<map>)", "sum(star(v) for v in <seq>)", "len(<map>)", "len(<set>)",
        "sum(<set>)", "counts[<num> % 5]", "pair.left", "pair.total()", "point._replace(a=<num>).a", "sub[<num> % 2]",
        "sub(<num>)", "sub.lazy_one", "-sub", "Box.twice(<num>)", "operator.itemgetter(0)(<seq>)",
        "stack.push(<num>)[-1]", "missing[<text>]", "max(<seq>, key=<fn>)", "max(<seq>, default=<num>)",
        "sum(v for row in nest for v in row if v > <num>)", "len([*<seq>, *<seq>])", "int(<text>)",
        "<text>.count('a')", "memo(<num> % 5)", "wrapped(<num>)", "slot.total", "getattr(box, <text>, <num>)",
        "getattr(box, 'value')", "Color(<num> % 3 + 1).value", "sum(itertools.islice(itertools.count(<num>), 3))",
        "next((v for v in <seq> if v > <num>), <num>)", "<num> << 1 & 15", "<num> ^ 3", "~<num>", "<num> // <num>",
        "(<num>, <num>)[<test>]", "[<num>, <num>][-1]", "{'p': <num>}['p']", "scaled_by.get(<text>, len)(<text>)",
        "cached.area", "<ten>.shape[-1]", "<ten>.stride(0)", "<ten>.ndim", "sum(a * b for a, b in zip(<seq>, <seq>))",
        "dispatch(<num>)", "dispatch(<text>)", "(yes := <num>) + yes", "collect(<seq>)", "deep(<num>)(<num>)",
        "guess(<num>)", "NET.calls", "float(<num>)", "hash(<num>)", "<seq>.index(<num>)", "ord(<text>[0])",
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
        "NET(<ten>)", "NET.linear(<ten>)", "<ten>[1:].mean(0) + <ten>", "torch.einsum('ij,ij->ij', <ten>, <ten>)",
        "<ten>.T.contiguous().T", "torch.maximum(<ten>, <ten>)", "<ten>.cumsum(1)", "<ten>[..., None].squeeze(-1)",
        "torch.chunk(<ten>, 2, dim=1)[0].repeat(1, 2)", "sum(<ten>.unbind(0)) + <ten>", "torch.rand_like(<ten>)",
        "torch.nn.functional.dropout(<ten>, 0.5)", "<ten>[torch.arange(3), :]", "<ten>.expand(3, 4)", "2 - <ten>",
        "torch.stack([row * <num> for row in <ten>])", "<ten>.to(torch.float64).to(torch.float32)", "<ten> ** 2",
        "functools.reduce(torch.add, tensors)", "torch.zeros_like(<ten>, requires_grad=False)", "abs(<ten>)",
        "twice(<ten>)", "star(<ten>, <num>)", "next(iter(tensors))", "<ten>.index_select(0, torch.tensor([2, 0, 1]))",
        "wrapped(<ten>)", "named(a=<ten>)", "operator.mul(<ten>, <num>)", "tensors[-1]", "nested['t'][0]",
        "<ten>.size(0) * <ten>", "torch.tensor([<num>, <num>, 1.0, 2.0]) + <ten>", "(+<ten>)", "<ten>.view_as(x)",
        "torch.ones(<num> % 3 + 1, 4)", "<ten>.narrow(1, 0, 2).sum() + y", "<ten>.unsqueeze(0)[0]",
        "<ten>.transpose(0, 1).reshape(3, 4)",
    ),
    "test": (
        "<num> > <num>", "<num> in <seq>", "not <test>", "<test> and <test>", "<test> or <test>", "<num> < <num> < 5",
        "<text> == <text>", "isinstance(box, Box)", "any(v > 1 for v in <seq>)", "all(<seq>)", "<ten> is x",
        "<seq> == <seq>", "hasattr(box, <text>)", "<ten>.dtype is torch.float32", "<ten>.requires_grad",
        "callable(helper)", "<num> != <num>", "bool(<num>)", "<text> in table", "items is nest[0]", "<set> <= <set>",
        "<num> in <set>", "<map> == <map>", "<text> in <map>", "isinstance(<num>, (int, bool))",
        "<text>.startswith(<text>)", "<num> is None", "<num> not in <seq>", "point == (<num>, 2)", "<num> in sub",
        "Color(<num> % 3 + 1) is Color.RED", "all(v < 9 for v in <set>)", "issubclass(type(sub), Box)",
        "pair == Pair(<num>)", "isinstance(<seq>, (list, tuple))", "<fn> is abs", "<text> < <text>",
        "<ten>.shape == (3, 4)", "<seq> < <seq>", "<ten>.is_contiguous()", "torch.is_grad_enabled()",
        "<set>.isdisjoint(<set>)", "x.shape[0] == <num>",
    ),
    "text": (
        "<text> + <text>", "'{}-{:>3}'.format(<num>, <num>)", "<text> * (<num> % 3)",
        "'-'.join(str(v) for v in <seq>)", "<text>.upper()", "repr(<num>)", "'%s' % <num>",
        "(<text> if <test> else <text>)", "f'{<num>!r:>4}{<text>!s}'", "f'{<num>:.2f}'", "'%d/%s' % (<num>, <text>)",
        "<text>[:2]", "<text>[::-1]", "<text>.replace('a', <text>)", "<text>.strip('q').title()",
        "','.join(sorted(<map>))", "str(<seq>)", "repr(point)", "'{a}:{b}'.format(a=<num>, b=<text>)",
        "<text>.split('-')[0]", "Color(<num> % 3 + 1).name", "f'{n=}'", "type(<num>).__name__",
        "f\"{'+' if <test> else '-'}{<num>:{len(items)}}\"", "repr(pair)", "<text>.zfill(3)", "str(x.dtype)",
    ),
    "seq": (
        "[v + 1 for v in <seq>]", "<seq>[:2]", "[<num>, *<seq>]", "sorted(<seq>)", "list(map(abs, <seq>))",
        "[a * b for a, b in zip(<seq>, <seq>)]", "list(reversed(<seq>))", "[v for v in <seq> if v % 2]",
        "(*<seq>, <num>)", "list(counting(<num> % 3))", "[p for p, _ in enumerate(<seq>)]",
        "list(itertools.chain(<seq>, <seq>))[:9]", "list(itertools.accumulate(<seq>))", "list({v: 1 for v in <seq>})",
        "sorted(<set>)", "list(<map>.values())", "[<num> for row in nest for v in row if v]",
        "sorted(<seq>, key=<fn>)", "sorted(<seq>, reverse=True)", "tuple(v for v in <seq>)",
        "[v if v > <num> else 0 for v in <seq>]", "list(filter(None, <seq>))", "list(talker(<seq>))",
        "list(outer(<seq>))", "[len(key) for key in <map>]", "list(itertools.islice(<seq>, 1, None))",
        "list(zip(<seq>, <seq>))[0]", "[q for v in <seq> if (q := v + 1) > 1]", "[*map(<fn>, <seq>)]", "<seq>[::-1]",
        "<seq>[-2:]", "[fn(<num>) for fn in later]", "list(range(<num> % 4, 5, 2))", "[sum(row) for row in nest]",
        "[[v, w][0] for v in <seq> for w in (1, 2) if w > 1]", "list(dict.fromkeys(<seq>))",
        "dataclasses.astuple(pair)[:2]", "list(itertools.starmap(max, zip(<seq>, <seq>)))", "list(queue)",
        "[*sub, <num>]", "[v for _, v in sorted(<map>.items())]", "list(itertools.takewhile(lambda v: v < 3, <seq>))",
        "[a for a, *b in [(1, 2), (<num>, 3)]]", "list(itertools.zip_longest(<seq>, [1], fillvalue=0))[0]",
        "bytes([1, 2])", "[key for key, group in itertools.groupby(<seq>)]", "list(itertools.pairwise(<seq>))[:1]",
        "stack.push(<num>)",
    ),
    "map": (
        "{**<map>, 'w': <num>}", "{str(v): v for v in <seq>}", "<map> | {'k': <num>}", "dict(zip('abk', <seq>))",
        "{key: v for key, v in <map>.items() if v}", "dict(<map>, k=<num>)", "collections.Counter(<text>)",
        "dict.fromkeys(<text>, <num>)", "{v: key for key, v in <map>.items()}", "dataclasses.asdict(pair)",
        "<map>.copy()", "vars(pair)", "collections.OrderedDict(<map>)", "point._asdict()",
    ),
    "set": (
        "<set> | <set>", "<set> & <set>", "<set> - <set>", "<set> ^ {<num>}", "{v % 3 for v in <seq>}",
        "frozenset(<seq>)", "set(<map>.values())", "{len(key) for key in <map>.keys()}", "<set>.union(<seq>)",
    ),
    "fn": (
        "(lambda v: v + <num>)", "functools.partial(helper, by=<num>)", "(<fn> if <test> else <fn>)", "deep(<num>)",
        "(lambda v, *rest: v - len(rest) - n)", "traced(<fn>)", "operator.methodcaller('__neg__')",
        "functools.partial(max, <num>)",
    ),
}  # fmt: skip

SIMPLE = (
    "<nv> = <num>", "<nv> = <num>", "<nv> = <num>", "<tv> = <ten>", "<tv> = <ten>", "<tv> = <ten>", "<nv> += <num>",
    "<nv> -= 1", "text = <text>", "text = (<text>)[:40]", "items = list(<seq>)[:9]", "items.append(<num>)",
    "items.extend(list(<seq>)[:4])", "items.insert(0, <num>)", "items[0] = <num>", "items.reverse()", "items.sort()",
    "items and items.pop()", "items += [<num>]", "items *= <num> % 3",
    "del items[:1]", "items[1:] = list(<seq>)[:4]",
    "items = [v + 1 for v in items]", "first, *rest = items; items = rest + [first]", "table[<text>] = <num>",
    "table['k'] += <num>", "table.pop(<text>, None)", "table.update(z=<num>)", "table = {**table, 'w': <num>}",
    "table.setdefault(<text>, <num>)", "del table['k']", "table[<text>] += 1", "table |= <map>",
    "table.update(<map>)", "table.popitem()", "table['k'], n = n, table['k']", "table.clear()", "seen.add(<num>)",
    "seen.discard(<num>)", "seen |= {<num>}", "seen -= <set>", "seen ^= <set>", "seen.update(<seq>)",
    "seen.remove(<num>)", "seen &= <set>", "seen = {v for v in <seq> if v}", "nest[0].append(<num>)",
    "nest.append(items)", "nest[-1][0] += <num>", "nest = [list(part) for part in nest]",
    "nest[0], nest[-1] = nest[-1], nest[0]", "del nest[<num> % 2][0]", "nest[:] = [items]", "nest[0] += [<num>]",
    "tensors.append(<ten>)", "tensors[0] = <ten>", "tensors.reverse()", "tensors[0] += <num>", "tensors[-1] *= 2",
    "nested['t'].append(<ten>)", "nested['n']['deep'] = <num>", "tensors[:1] = [<ten>, <ten>]", "del tensors[0]",
    "<tv> += <num>", "<tv>[0] = <num>", "<tv>.mul_(<num> % 3)", "<tv>[:, 1].add_(1)", "<tv>[<num> % 3, 0] = <num>",
    "<tv>.copy_(<ten>)", "torch.add(<ten>, 1, out=z)", "<tv>.data.mul_(2)", "<tv>, z = z, <tv>", "<tv> -= <ten>",
    "<tv>[<tv> > 1] = <num>", "<tv>[1] += <num>", "<tv>[:, 1:] *= 2", "row = <tv>[1]; row.add_(<num>)",
    "<tv>.t().mul_(2)", "a, b = <tv>.split(2, dim=1); a.add_(<num>)", "<tv> = <tv>[torch.randperm(3)]",
    "view = <tv>.view(-1); view[0] = <num>", "rows, cols = <ten>.shape; k = rows - cols", "<tv>.zero_()",
    "<tv> @= torch.eye(4)", "<tv>.clamp_(min=<num>)", "box.value = <num>", "box.value += <num>", "box.held = <ten>",
    "box.extra = <num>", "box.double = <num>", "box.items = items", "box.double += <num>", "box.held += <num>",
    "box.held[0] = <num>", "del box.extra", "box.name = <text>", "setattr(box, <text>, <num>)", "Box.made += 1",
    "sub = Sub.make(<num>)", "sub[0] = <num>", "sub += <num>", "sub = sub + <num>", "del sub[0]",
    "sub.more.extend(list(<seq>)[:4])", "sub.typed = <num>", "n = sub.typed", "slot.a, slot.b = <num>, slot.a",
    "del slot.b",
    "slot.a += <num>", "pair.left += <num>", "pair.parts.append(<num>)",
    "pair = dataclasses.replace(pair, right=<num>)", "sub.held, box.held = box.held, sub.held",
    "box.__dict__['z'] = <num>", "del box.value", "n, m = m, n", "first, *items = [<num>, *items]",
    "(n, m), k = (<num>, <num>), <num>", "n = m = <num>", "[n, (m, *rest)] = [<num>, (<num>, 1, 2)]; items += rest",
    "n, = [<num>]", "n, m = <seq>", "items[0], items[-1] = items[-1], <num>", "assert <test> or n, f'{n}'",
    "assert n == n, f'{x}'", "assert <test>", "STATE['total'] = <num>", "counter()", "bump(<num>)",
    "STATE['total'] += <num>", "TOTAL += <num>", "TOTAL = <num>", "LOG.append(<num>)", "log(<num>)",
    "STATE['x'] = items", "k = <num> if <test> else <num>", "helper = (lambda v, by=<num>: v + by)",
    "items = items or [<num>]", "add_to_total(<num>)", "pair_ = (<num>, <ten>); n, z = pair_",
    "k = [fn(<num>) for fn in later][-1]", "later.append(lambda v, n=n: v + n + m)", "later.append(<fn>)",
    "later += [lambda v, w=w: v * w + k for w in (1, 2)]", "later = [(lambda v: v + w) for w in (1, 2)]",
    "del text; text = 'd'", "text = f'{n}-{m}'; n = len(text)", "text += <text>; text = text[-30:]",
    "note = Box(<num>); k = note.scaled(2)", "NET.calls += 1", "NET.scale.mul_(2)", "NET.train(<test>)",
    "NET.note = <num>", "if (k := <num>) > 1: n = k", "if <test>: raise CustomError(<num>)",
    "if <test>: raise CodedError(<num>, hint=<text>)", "if <test>: return <num>", "if <test>: return <ten>, <seq>",
    "<var> = 1; del <var>; n = <var>", "if <test>: k = <num>", "pass", "it = iter(<seq>); n = next(it, 0); m = sum(it)",
    "it = enumerate(items, 1); next(it, None); n = sum(a for a, _ in it)", "n = next(progress, -1)",
    "items += itertools.islice(progress, 2)", "progress = zip(<seq>, <seq>)", "progress = map(<fn>, <seq>)",
    "progress = talker(<seq>)", "progress = (v + n for v in <seq>)", "progress = iter(<seq>)",
    "progress = outer(<seq>)", "progress = itertools.chain(<seq>, progress)",
    "gen = talker(<seq>); next(gen, 0); n = gen.send(<num>)", "n = <num> in progress",
    "gen = talker(<seq>); next(gen, 0); gen.close()",
    "gen = talker(<seq>); next(gen, 0); n = gen.throw(ValueError, ValueError(<num>))", "queue.append(<num>)",
    "queue.appendleft(<num>)", "n = queue.popleft()", "queue.rotate(1)", "queue.extend(<seq>)", "queue[0] = <num>",
    "counts[<num> % 5] += 1", "counts.update(<seq>)", "counts.subtract([<num>])", "groups[<num> % 2].append(<num>)",
    "groups[<text>] += [n]", "extra.move_to_end('k')", "extra[<text>] = <num>", "stack.push(<num>).push(n)",
    "stack.tag = <num>", "missing[<text>] += <num>", "point = point._replace(b=<num>)", "a, b = point; n = a - b",
    "scaled_by[<text>] = <fn>", "n = wrapped(<num>, by=<num>)", "n = NET.calls; NET(x)", "x.tag = <num>",
    "cached.area; cached.side = <num>", "point.a = <num>", "import math; n = math.floor(<num>)",
    "from operator import add as plus; n = plus(<num>, <num>)", "class Local: value = <num>\nn = Local.value",
    "OTHER = <num>", "OTHER = items", "n = type('Made', (Box,), {'size': <num>})(2).scaled(1)",
    "assert (<ten> < 40).all(), <num>", "if <ten>.max() > 30: raise CustomError(<num>)",
    "z = <ten>[torch.tensor(<num> % 7)]",
    "x += <num>; items.append(x.index_select(0, torch.tensor([<num> % 7])).sum())",
    "y = <ten> + torch.rand(4)[torch.tensor(<num> % 9)]",
)  # fmt: skip

# Statements at which a graph has to end.
BREAKING = (
    "log(<num>)", "x.tag = <num>", "log(<ten>.sum().item() > 0)", "k = int((<ten> > 0).sum())",
    "k = len((<ten>).tolist())", "if <ten>.sum() > <num>: n += 1",
    "<var> = 0\nwhile x.abs().max() > 5 and <var> < 9: x = x / 2; <var> += 1", "k = bool((<ten> > 9).any())",
    "[log(v) for v in <seq>]", "helper(log(<num>) or <num>)", "print(<num>, m, len(items))",
    "print(f'{<ten>.sum():.2f}', n)", "n = int(<ten>[0, 0] > 0) + <num>", "<tv> = loud(<ten>)", "<nv> = loud(<num>)",
    "items = [loud(v) for v in <seq>]", "assert <ten>.sum() < 1e9", "n += int(<ten>.sum().clamp(-99, 99).item()) % 3",
    "loud(box)", "x = x if x.sum() > <num> else y", "y = (loud(x) + y, print(<num>))[0]",
    "print(sorted(k for k in locals() if k in 'nmxy'))", "m = sum(map(loud, [m, <num>]))",
    "box.value = loud(box.value) + <num>; loud(box.value)", "n = noisy_counter() + <num>",
    "text = f'{x}'; x += 1; print(len(text))", "print(*[calls, <num>], sep='-')",
    "n = max(items, key=loud) if items else n", "x = (x * 2 if loud(<num>) else x) + loud(<ten>)",
    "it = iter(<seq>); print(next(it, 0)); n = sum(it)", "items[loud(0)] = loud(<num>)", "box.value += loud(<num>)",
    "table[loud(<text>)] = loud(<num>)", "text = f'{loud(<num>)}{loud(<text>)}'", "items[loud(0)] += loud(<num>)",
    "n = star(loud(<num>), *map(loud, <seq>))", "n = named(a=loud(<num>), **<map>)",
    "table = {loud(key): loud(v) for key, v in <map>.items()}", "seen = {loud(v) for v in <seq>}",
    "n = <num> < loud(<num>) < 5", "k = loud(<num>) or loud(<num>)", "assert loud(<test>), loud(<text>)",
    "if loud(<test>): raise CustomError(loud(<num>))", "del items[loud(0)]", "box.held[loud(0)] += <num>",
    "n = (lambda v: loud(v) + n)(<num>)", "n = sum(loud(v) for v in <seq>)", "progress = (loud(v) for v in <seq>)",
    "n = next(progress, loud(<num>))", "later.append(loud)", "print(next(progress, None))",
    "n = sorted(items, key=loud)[-1]", "NET(loud(x))", "n = loud(sub)[0]", "sub[loud(0)] = <num>",
    "print(repr(pair), point)", "point = point._replace(a=loud(<num>))", "print('%s' % <text>, end='')",
    "n, m = loud(<num>), loud(<num>)", "a, *b = map(loud, [<num>, 2]); n = a", "TOTAL += loud(<num>)",
    "STATE[loud('total')] += 1", "del box.extra; loud(1)", "if x.sum() > <num>: return loud(<ten>)",
    "gen = talker(map(loud, <seq>)); next(gen, 0); gen.close()",
    "n = functools.reduce(lambda a, b: loud(a) + b, <seq>, 0)", "class Local: value = loud(<num>)\nn = Local.value",
    "torch.manual_seed(<num> % 5); x = x + torch.rand(3, 4)", "x = torch.where(x > loud(<num>), x, y)",
)  # fmt: skip

BLOCKS = (
    "if <test>:\n    <body>\nelse:\n    <body>", "if <test>:\n    <body>\nelif <test>:\n    <body>",
    "for i in range(<num> % 4):\n    <body>\n    if <test>:\n        break\nelse:\n    <body>",
    "for i in [*<seq>][:3]:\n    <body>\n    if <test>:\n        continue\n    <body>",
    "for key, k in list(<map>.items())[:3]:\n    <body>", "for i, row in enumerate(x):\n    z = z + row\n    <body>",
    "for i, (a, b) in enumerate(zip(<seq>, [1, 2])):\n    <body>\n    n += a", "for items[0] in [1, 2]:\n    <body>",
    "for box.value in (<num>, <num>):\n    <body>",
    "<var> = 0\nwhile <var> < 3:\n    <var> += 1\n    <body>\n    if <test>:\n        break\nelse:\n    <body>",
    "<var> = 0\nwhile True:\n    <var> += 1\n    if <var> > 2 or <test>:\n        break\n    <body>",
    "try:\n    <body>\n    <raiser>\nexcept <error> as error:\n    <body>\n    k = len(error.args)\n"
    "finally:\n    <body>",
    "try:\n    <body>\nexcept <error>:\n    <body>\nelse:\n    <body>",
    "try:\n    <body>\nexcept <error> as error:\n    raise CustomError(<num>) from error",
    "try:\n    <raiser>\nexcept <error>:\n    raise CodedError(<num>) from None",
    "try:\n    <body>\n    <raiser>\nexcept <error>:\n    <body>\n    raise",
    "try:\n    <raiser>\nexcept CodedError as error:\n    n = error.code; text = error.hint\n"
    "except <error> as error:\n    items.append(str(error))\n    <body>",
    "try:\n    try:\n        <raiser>\n    finally:\n        <body>\nexcept <error> as error:\n"
    "    n = type(error.__context__).__name__\n    <body>",
    "try:\n    raise ExceptionGroup('g', [ValueError(<num>), KeyError(1)])\n"
    "except* ValueError as group:\n    k = len(group.exceptions)\n    <body>\nexcept* LookupError:\n"
    "    <body>",
    "for i in range(2):\n    try:\n        <body>\n        if <test>:\n            continue\n"
    "        <raiser>\n    except <error>:\n        break\n    finally:\n        <body>",
    "for i in range(3):\n    try:\n        <body>\n        break\n    finally:\n        <body>\n"
    "        if <test>:\n            continue",
    "with torch.inference_mode():\n    <body>", "with torch.inference_mode(<test>):\n    <body>\n    <raiser>",
    "with torch.autocast('cpu', enabled=<test>):\n    <body>\n    <raiser>",
    "with torch.no_grad():\n    <body>", "with torch.set_grad_enabled(<test>):\n    <body>\n    <raiser>",
    "with Scope(box, <num>) as k:\n    <body>\n    <raiser>",
    "with Scope(box, <num>) as n, Managed(items):\n    <body>\n    <raiser>",
    "with contextlib.suppress(<error>):\n    <body>\n    <raiser>", "with Managed(items):\n    <body>\n    <raiser>",
    "with guarded(items) as n:\n    <body>\n    <raiser>",
    "with contextlib.ExitStack() as exits:\n    exits.enter_context(guarded(items))\n"
    "    exits.callback(log, <num>)\n    <body>\n    <raiser>",
    "for i in range(2):\n    with guarded(items):\n        if <test>:\n            break\n        <body>",
    "def <var>(a, *rest, b=<num>, **named):\n    nonlocal n\n    <inner>\n"
    "    return a + b + len(rest) + len(named)\nk = <var>(<num>, *items[:2], c=1)",
    "def <var>(x, items):\n    n = m = <num>\n    <alone>\n    return x\n<tv> = <var>(<ten>, items)",
    "def <var>(v):\n    def inner(w):\n        nonlocal v, m\n        v += w\n        m = v\n"
    "        <alone>\n        return v\n    inner(1)\n    return inner\nn = <var>(<num>)(<num>)",
    "def <var>(v):\n    try:\n        <alone>\n        return v + <num>\n    finally:\n"
    "        items.append(v)\nn = <var>(<num>)",
    "def <var>(v):\n    for w in [*<seq>]:\n        try:\n            <alone>\n            <raiser>\n"
    "            return w\n        except <error>:\n            continue\n        finally:\n"
    "            if <test>:\n                break\n    return v\nn = <var>(<num>)",
    "def <var>(v):\n    with guarded(items):\n        <alone>\n        return v\n<tv> = <var>(<ten>)",
    "@traced\ndef <var>(v, /, w=<num>, *, u=1):\n    <alone>\n    return v * w - u\nn = <var>(<num>, u=<num>)",
    "def <var>(count):\n    got = 0\n    try:\n        for v in range(count):\n"
    "            got = (yield v + n) or 0\n            <alone>\n    finally:\n"
    "        CLOSED.append(got)\n    return 5\nfor k in <var>(<num> % 3):\n    <body>",
    "def <var>(v):\n    result = yield from talker(<seq>)\n    items.append(result)\n    yield v\n"
    "n = sum(<var>(<num>))",
    "match <seq>:\n    case [a, *others]:\n        <body>\n    case _:\n        <body>",
    "match n:\n    case 0 | 1:\n        <body>\n    case v if v > 3:\n        <body>",
    "match <map>:\n    case {'k': 1 | 2 as got, **others}:\n        n = got + len(others)\n"
    "        <body>\n    case {}:\n        <body>",
    "match point:\n    case Point(a=1, b=got):\n        n = got\n        <body>\n    case Point():\n        <body>",
    "match <num>, <text>:\n    case int(got), 'a' | 'k':\n        n = got\n"
    "    case (_, str() as text):\n        <body>",
    "match box:\n    case Box(value=int(v)) if v > <num>:\n        <body>\n"
    "    case Box(held=torch.Tensor() as z):\n        <body>",
    "if <test>:\n    return x, n, items", "for i in counting(<num> % 4):\n    <body>",
    "for i in <set>:\n    n += i\nelse:\n    <body>",
    "for part in list(nest)[:2]:\n    part.append(<num>)\n    <body>",
    "for t in tensors[:2]:\n    x = x + t\n    <body>",
    "for n, m in itertools.product((1, 2), <seq>[:1]):\n    <body>",
)  # fmt: skip
# Compound statements that end a graph in the middle of something.
BREAKING_BLOCKS = (
    "if x.sum() > <num>:\n    <body>\nelse:\n    <body>", "for row in x:\n    print(row.shape)\n    <body>",
    "<var> = 0\nwhile x.sum() < 50 and <var> < 2:\n    <var> += 1\n    <body>",
    "try:\n    <body>\n    int(str(<num>) + 'x')\nexcept ValueError:\n    <body>",
    "for i in map(loud, <seq>[:2]):\n    <body>",
    "with Scope(box, loud(<num>)) as k:\n    print(k)\n    <body>\n    <raiser>",
    "with guarded(items):\n    loud(n)\n    <body>\n    <raiser>",
    "try:\n    loud(1)\n    <raiser>\nexcept <error> as error:\n    print(repr(error))\n    <body>\n"
    "finally:\n    loud(2)\n    <body>",
    "def <var>(v):\n    loud(v)\n    <alone>\n    print(m)\n    return v * 2\n<tv> = <var>(<ten>)",
    "match loud(<seq>):\n    case [a, *others]:\n        <body>\n    case _:\n        <body>",
    "while loud(items) and x.sum() < 99:\n    items.pop()\n    n += 1\n    if n > 5: break",
    "try:\n    raise ExceptionGroup('g', [ValueError(loud(<num>)), KeyError(1)])\n"
    "except* ValueError as group:\n    loud(1)\n    <body>\nexcept* LookupError:\n    <body>",
    "for i, row in enumerate(x):\n    if row.sum() > <num>:\n        continue\n    <body>",
    "def <var>(v):\n    if v.sum() > <num>:\n        return v\n    <alone>\n    return v + 1\n<tv> = <var>(<ten>)",
)  # fmt: skip
RAISERS = (
    "items[99]", "table['none']", "1 // 0", "n + 0", "raise ValueError(n)", "raise CustomError(<num>)", "pass",
    "raise CodedError(<num>, hint='t')", "box.nothing", "unbound", "if <test>: raise KeyError(<text>)", "int('x')",
    "n + 'a'", "raise TypeError", "[].pop()", "next(iter([]))", "if <test>: raise StopIteration(<num>)",
    "raise CustomError(x, 'a')", "None.x", "assert <test>, <text>", "len(3)", "helper()", "x.nothing", "x @ x",
)  # fmt: skip
# Statements of inner functions, with and without the names that those declare as another's.
INNER = (
    "n += <num>", "items.append(<num>)", "x = x * 2", "if <test>: return a", "n = n - 1", "x.add_(1)", "pass",
    "table['k'] = n", "LOG.append(n)",
)  # fmt: skip
ALONE = (
    "items.append(<num>)", "table['k'] = <num>", "LOG.append(m)", "box.value += 1", "STATE['total'] += 1",
    "counter()", "x.add_(1)", "tensors.append(x)", "pass", "if <test>: raise CustomError(3)", "seen.add(<num>)",
    "bump(1)",
)  # fmt: skip

START = """\
def program(x, y, n, m, items, table, box):
    global TOTAL, OTHER
    calls = 0
    i = k = 1
    z = x.clone()
    text, seen, nest, tensors, later = 'q', {1, 3}, [items, [5]], [y, x], [abs]
""".rstrip().split("\n")

# What stands at the head where the program uses it: variables, which are also returned, and functions.
VARIABLES = {
    "sub": "sub = Sub(n, 1, 2)",
    "slot": "slot = Slotted(1, n)",
    "point": "point = Point(1, m)",
    "pair": "pair = Pair(n)",
    "queue": "queue = collections.deque([3, n], maxlen=6)",
    "counts": "counts = collections.Counter([1, 1, n])",
    "groups": "groups = collections.defaultdict(list)",
    "extra": "extra = collections.OrderedDict(k=1, j=n)",
    "stack": "stack = Stack([n])",
    "missing": "missing = Missing(k=1)",
    "nested": "nested = {'t': [x, z], 'n': {'deep': 0}}",
    "scaled_by": "scaled_by = {'a': len, 'k': str.upper}",
    "cached": "cached = Cached(n)",
    "progress": "progress = iter([1, n, 3, m, 5])",
}
FUNCTIONS = {
    "helper": "def helper(v, by=2):\n    return v * by",
    "counter": "def counter(step=1):\n    nonlocal calls\n    calls += step\n    return calls",
    "bump": "def bump(step):\n    nonlocal n\n    n = n + step\n    STATE['total'] += 1",
    "add_to_total": "def add_to_total(step):\n    global TOTAL\n    TOTAL = TOTAL + step",
    "counting": "def counting(count):\n    for position in range(count):\n        yield position + calls",
    "recurse": "def recurse(depth):\n    return depth if depth <= 0 else recurse(depth - 1) + 1",
    "apply": "def apply(fn, *args, **named):\n    return fn(*args, **named)",
    "collect": "def collect(parts, into=[]):\n    into.extend(parts)\n    del into[3:]\n    return len(into)",
    "deep": "def deep(a):\n    def middle(b=1):\n        def inner():\n            nonlocal a\n"
    "            a = a + b + m\n            return a\n        return inner()\n    return middle",
    "guess": "def guess(v):\n    try:\n        return 6 // (v % 3)\n"
    "    except ZeroDivisionError as error:\n        return len(error.args)\n    finally:\n        items.append(v)",
    "stepped": "@functools.wraps(abs)\ndef stepped(v):\n    nonlocal k\n    k = v\n    return v",
    "loud": "def loud(v):\n    w = [v]\n    print(type(v).__name__)\n    return w[0]",
    "noisy_counter": "def noisy_counter():\n    nonlocal calls\n    calls += 1\n    print(calls)\n"
    "    calls += 1\n    return calls",
}
RETURNED = "x, y, z, n, m, k, items, table, calls, text, seen, nest, tensors, later"

PRELUDE = """\
import collections, contextlib, dataclasses, enum, functools, itertools, operator, torch
from typing import NamedTuple
TOTAL = 0
STATE = {'total': 0}
LOG = []
CLOSED = []
def log(value):
    LOG.append(value)
class CustomError(Exception):
    pass
class CodedError(CustomError):
    def __init__(self, code, *, hint='h'):
        super().__init__(code)
        self.code, self.hint = code, hint
class Box:
    size = 3
    made = 0
    name = 'box'
    def __init__(self, value):
        self.value = value
        self.held = torch.full((3, 4), 0.5)
    def __repr__(self):
        return f'{type(self).__name__}({self.value})'
    @property
    def double(self):
        return self.value * 2
    @double.setter
    def double(self, value):
        self.value = value // 2
    @classmethod
    def make(cls, value):
        Box.made += 1
        return cls(value)
    @staticmethod
    def twice(value):
        return value * 2
    def scaled(self, by):
        return self.value * by + self.size
    def shifted(self, tensor):
        self.value += 1
        return tensor + self.held
class Typed:
    def __set_name__(self, owner, name):
        self.name = '_' + name
    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 0)
    def __set__(self, obj, value):
        if not isinstance(value, int):
            raise TypeError(f'{self.name}: {value!r}')
        setattr(obj, self.name, value)
class Sub(Box):
    size = 4
    typed = Typed()
    def __init__(self, value, *more):
        super().__init__(value)
        self.more = list(more)
    def scaled(self, by):
        return super().scaled(by) + len(self.more)
    def __len__(self):
        return len(self.more)
    def __getitem__(self, key):
        return self.more[key]
    def __setitem__(self, key, value):
        self.more[key] = value
    def __delitem__(self, key):
        del self.more[key]
    def __iter__(self):
        yield from self.more
    def __contains__(self, value):
        return value in self.more or value == self.value
    def __add__(self, other):
        return type(self)(self.value + other, *self.more)
    def __iadd__(self, other):
        self.more.append(other)
        return self
    def __neg__(self):
        return -self.value
    def __call__(self, by):
        return self.scaled(by)
    def __getattr__(self, name):
        if name.startswith('lazy_'):
            return len(name)
        raise AttributeError(f'no {name}')
class Slotted:
    __slots__ = ('a', 'b')
    def __init__(self, a, b):
        self.a, self.b = a, b
    @property
    def total(self):
        return self.a + self.b
class Point(NamedTuple):
    a: int
    b: int = 2
@dataclasses.dataclass
class Pair:
    left: int
    right: int = 3
    parts: list = dataclasses.field(default_factory=list)
    def total(self):
        return self.left + self.right
class Color(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3
class Stack(list):
    def push(self, value):
        self.append(value)
        return self
class Missing(dict):
    def __missing__(self, key):
        self[key] = len(key)
        return self[key]
class Cached:
    def __init__(self, side):
        self.side = side
    @functools.cached_property
    def area(self):
        LOG.append(self.side)
        return self.side * self.side
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        torch.nn.init.constant_(self.linear.weight, 0.25)
        torch.nn.init.constant_(self.linear.bias, 0.5)
        self.register_buffer('scale', torch.full((3, 4), 2.0))
        self.calls = 0
    def forward(self, tensor):
        self.calls += 1
        if self.training:
            self.scale.add_(1)
        return self.linear(tensor) * self.scale
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
@contextlib.contextmanager
def guarded(items):
    items.append(7)
    try:
        yield len(items)
    except LookupError:
        items.append(8)
    finally:
        items.append(9)
def twice(value):
    return value + value
def star(first, *rest, b=1):
    return first * b + sum(rest)
def named(*, a=1, **others):
    return a + len(others)
def traced(fn):
    @functools.wraps(fn)
    def inner(*args, **named):
        LOG.append(getattr(fn, '__name__', 'fn'))
        return fn(*args, **named)
    return inner
@traced
def wrapped(value, by=3):
    return value - by
@functools.lru_cache(maxsize=None)
def memo(value):
    return value * 3
@functools.singledispatch
def dispatch(value):
    return 1
@dispatch.register
def _(value: str):
    return len(value)
def talker(parts):
    try:
        for part in parts:
            try:
                got = yield part
            except ValueError as error:
                got = yield len(error.args)
            if got:
                LOG.append(got)
    finally:
        CLOSED.append(3)
    return 3
def outer(parts):
    result = yield from talker(parts)
    yield result
"""
