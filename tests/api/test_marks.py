"""`disable`, `allow_in_graph`, `trace_through`, `substitute`: what they do to tracing, compared with eager."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import armature
from armature.errors import NotCallable, Unsupported, WrongArgument
from armature.pipeline.session import session
from armature.plugins import manager
from armature.rules import Decision
from armature.rules.errors import BadTarget, SignatureMismatch
from tests.support import forked

X = torch.linspace(-1, 1, 8)


@pytest.fixture(autouse=True)
def apart() -> Iterator[None]:
    with manager().user.apart():
        yield


def whole(fn: Any, backend: str = "eager") -> Any:
    return armature.compile(fn, backend=backend, fullgraph=True)


def compiled_names() -> list[str]:
    return [c.function.rpartition(".")[2] for c in session().compilations]


def targets() -> list[Any]:
    module = session().compilations[-1].module
    assert module is not None
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def below(x: Any) -> Any:
    return torch.sin(x) + 1


class Caller:
    def __call__(self, x: Any) -> Any:
        return below(x) * 2

    def method(self, x: Any) -> Any:
        return below(x) * 2


def caller(x: Any, *, by: int = 2) -> Any:
    return below(x) * by


KINDS = {
    "function": lambda: caller,
    "method": lambda: Caller().method,
    "object": lambda: Caller(),
    "partial": lambda: functools.partial(caller, by=2),
    "compiled": lambda: armature.compile(caller, backend="eager"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recursive", [True, False])
def test_disable_of_every_kind(kind: str, recursive: bool) -> None:
    fn = KINDS[kind]()
    disabled = armature.disable(fn, recursive=recursive)
    expected = (below(X) * 2) + 3

    def outer(x: Any) -> Any:
        return disabled(x) + 3

    assert torch.equal(armature.compile(outer, backend="eager")(X), expected)
    names = compiled_names()
    assert "caller" not in names and "__call__" not in names and "method" not in names
    assert ("below" in names) is not recursive
    with pytest.raises(Unsupported):
        whole(outer)(X)


def test_disable_leaves_the_function_itself_as_it_was() -> None:
    armature.disable(caller)
    armature.disable(caller, recursive=False)
    assert torch.equal(whole(caller)(X), caller(X))
    assert compiled_names() == ["caller"]


def test_the_break_says_where_and_why() -> None:
    @armature.disable(recursive=False, reason="reads a file")
    def reader(x: Any) -> Any:
        return x + 1

    with pytest.raises(Unsupported, match=r"disable\(recursive=False\) at .*test_marks.py:\d+: reads a file"):
        whole(lambda x: reader(x) * 2)(X)
    verdict = armature.why(reader)
    assert verdict.decision is Decision.SKIP and verdict.origin.file == __file__


def test_a_program_that_only_disables_is_told_that_it_did(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import torch\nimport armature\n"
        "@armature.disable\ndef left_out(x):\n    return x + 1\n"
        "(found,) = armature.explain(lambda x: left_out(x * 2))(torch.ones(2)).breaks\n"
        "print(found.type.id, found.facts['reason'])\n"
    )  # in a process of its own: here other tests have made rules before
    told = forked.run([script]).stdout
    assert told == f"disabled-function armature.disable at {script}:3\n"


def test_a_wrapper_around_a_disabled_function_is_not_disabled() -> None:
    inner = armature.disable(below)

    @functools.wraps(inner)
    def wrapper(x: Any) -> Any:
        return x + 1

    assert torch.equal(whole(wrapper)(X), X + 1)


def test_disable_of_a_module_and_of_methods_in_a_class() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    expected = model(X)
    armature.disable(model[0], recursive=False)
    assert torch.equal(armature.compile(model, backend="eager")(X), expected)
    with pytest.raises(Unsupported):
        whole(model)(X)

    class Model(torch.nn.Module):
        @armature.disable
        def left(self, x: Any) -> Any:
            return x * 2

        @armature.disable(recursive=False)
        @staticmethod
        def other(x: Any) -> Any:
            return x * 3

        def forward(self, x: Any) -> Any:
            return self.left(x) + self.other(x)

    assert torch.equal(armature.compile(Model(), backend="eager")(X), X * 2 + X * 3)


@pytest.mark.parametrize("arguments", [{"recursive": 1}, {"recursive": None}, {"reason": 3}])
def test_disable_checks_its_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(WrongArgument):
        armature.disable(below, **arguments)


def test_disable_of_a_class_is_refused() -> None:
    with pytest.raises(BadTarget, match="methods"):
        armature.disable(Caller)


def test_allow_in_graph_of_many_and_twice() -> None:
    def one(x: Any) -> Any:
        return x + 1

    def two(x: Any) -> Any:
        return x * 2

    assert armature.allow_in_graph([one, two]) == [one, two]
    said = len(manager().user.declared)
    assert armature.allow_in_graph(one) is one and len(manager().user.declared) == said
    assert torch.equal(whole(lambda x: two(one(x)))(X), (X + 1) * 2)
    assert targets() == [one, two]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("mark", [armature.allow_in_graph, armature.trace_through])
def test_a_function_that_changes_its_argument(mark: Any, backend: str) -> None:
    @mark
    def add_one(x: Any) -> Any:
        x.add_(1)
        return x

    def f(x: Any) -> Any:
        y = x * 2
        add_one(y)
        return add_one(x) + y

    given, expected = X.clone(), X.clone()
    assert torch.equal(whole(f, backend)(given), f(expected))
    assert torch.equal(given, expected)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Batch:
    values: Any
    mask: Any
    scale: float = 2.0


pytree.register_dataclass(Batch)


def opaque_python(x: Any) -> Any:
    """What the front end cannot follow: reflection over its own frame and numpy."""
    shape = eval("tuple(x.shape)")
    return x * int(np.prod(shape))


def of_tree(tree: Any, *, by: Any = 1) -> Any:
    shape = eval("len(tree)")
    return {"sum": tree[0] + tree[1]["a"], "pair": Pair(tree[0] * by, shape), "list": [tree[1]["a"], None, "text"]}


def of_object(batch: Batch) -> Batch:
    return Batch(batch.values * batch.scale, eval("batch.mask") + 1, scale=3.0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_trace_through_puts_one_node_in_the_graph(backend: str) -> None:
    marked = armature.trace_through(opaque_python)
    assert marked is opaque_python

    def f(x: Any) -> Any:
        return opaque_python(x + 1) - 1

    assert torch.equal(whole(f, backend)(X), f(X))
    assert [getattr(t, "__wrapped__", None) for t in targets()].count(opaque_python) == 1
    verdict = armature.why(opaque_python)
    assert verdict.decision is Decision.IN_GRAPH and "trace_through" in verdict.reason


def test_trace_through_is_traced_at_aten_level() -> None:
    armature.trace_through(opaque_python)
    seen: list[str] = []

    def compiler(module: Any, inputs: Any) -> Any:
        seen.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    def backend(module: Any, inputs: Any) -> Any:
        traced = torch.fx.experimental.proxy_tensor.make_fx(module)(*inputs)
        return compiler(traced, inputs)

    whole(lambda x: opaque_python(x) + 1, backend)(X)  # type: ignore[arg-type]
    assert seen == ["aten.mul.Tensor", "aten.add.Tensor"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
def test_trace_through_takes_and_gives_trees(backend: str) -> None:
    armature.trace_through(of_tree)

    def f(x: Any, y: Any) -> Any:
        found = of_tree((x, {"a": y, "b": 3}), by=y)
        return found["sum"] + found["pair"].left * found["pair"].right, found

    result, tree = whole(f, backend)(X, X + 1)
    expected, expected_tree = f(X, X + 1)
    torch.testing.assert_close(result, expected)
    assert type(tree["pair"]) is Pair and tree["pair"].right == 2 and tree["list"][1:] == [None, "text"]
    torch.testing.assert_close(tree["list"][0], expected_tree["list"][0])


def test_trace_through_takes_and_gives_objects_that_pytree_knows() -> None:
    armature.trace_through(of_object)

    def f(batch: Batch) -> Any:
        made = of_object(batch)
        return made.values + made.mask * made.scale

    batch = Batch(X, X + 1)
    assert torch.equal(whole(f)(batch), f(batch))
    assert torch.equal(whole(f)(Batch(X, X + 1, scale=5.0)), f(Batch(X, X + 1, scale=5.0)))


def test_trace_through_and_gradients() -> None:
    armature.trace_through(opaque_python)

    def f(x: Any) -> Any:
        return (opaque_python(x) ** 2).sum()

    left, right = X.clone().requires_grad_(), X.clone().requires_grad_()
    f(left).backward()
    whole(f, "aot_eager")(right).backward()
    torch.testing.assert_close(right.grad, left.grad)


def appends(items: list[Any], x: Any) -> Any:
    items.append(x)
    return x + len(items)


def gives_its_argument(items: list[Any]) -> Any:
    return items


def branches(x: Any) -> Any:
    return x + 1 if eval("x.sum() > 0") else x - 1


def gives_an_object(x: Any) -> Any:
    return Caller()


@pytest.mark.parametrize(
    ("fn", "call"),
    [
        (appends, lambda x: (lambda items: (appends(items, x), items))([x])),
        (gives_its_argument, lambda x: (lambda items: gives_its_argument(items) is items)([x * 2])),
        (branches, lambda x: branches(x)),
        (gives_an_object, lambda x: type(gives_an_object(x))),
    ],
    ids=["changes a list", "gives its argument", "depends on numbers", "gives an object"],
)
def test_what_trace_through_cannot_do_breaks_the_graph_and_is_right(fn: Any, call: Any) -> None:
    armature.trace_through(fn)
    with pytest.raises(Unsupported):
        whole(call)(X)
    expected, result = call(X), armature.compile(call, backend="eager")(X)
    assert pytree.tree_structure(result) == pytree.tree_structure(expected)
    for one, other in zip(pytree.tree_leaves(result), pytree.tree_leaves(expected), strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_trace_through_with_sizes_that_change() -> None:
    @armature.trace_through
    def sized(x: Any, by: int) -> Any:
        return {"x": x * by, "size": x.shape[0]}

    def f(x: Any) -> Any:
        found = sized(x, x.shape[1])
        return found["x"] + found["size"], found["size"]

    compiled = armature.compile(f, backend="eager", fullgraph=True, dynamic=True)
    for shape in ((3, 4), (5, 6), (7, 2)):
        x = torch.ones(shape)
        result, size = compiled(x)
        assert torch.equal(result, f(x)[0]) and size == shape[0]
    assert len(session().compilations) == 1


def test_compiling_a_disabled_function_leaves_it_eager() -> None:
    assert torch.equal(armature.compile(armature.disable(below), backend="eager")(X), below(X))
    assert compiled_names() == []


def test_trace_through_gives_ordered_dicts_and_shared_lists() -> None:
    @armature.trace_through
    def shared(x: Any) -> Any:
        items = [x + 1, x + 2]
        return collections.OrderedDict(b=items, a=items)

    def f(x: Any) -> Any:
        found = shared(x)
        found["a"].append(x)
        return type(found) is collections.OrderedDict, list(found), len(found["b"]), found["b"][1]

    result, expected = whole(f)(X), f(X)
    assert result[:3] == expected[:3] and torch.equal(result[3], expected[3])


def test_trace_through_gives_an_empty_tuple_of_its_own() -> None:
    @armature.trace_through
    def nothing(*, x: Any) -> Any:
        return ()

    assert whole(lambda x: (nothing(x=x), x + 1))(X)[0] == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("call", [armature.trace_through, armature.allow_in_graph, armature.substitute])
def test_only_what_can_be_called(call: Any) -> None:
    with pytest.raises(NotCallable):
        call(3)


@pytest.mark.parametrize("call", [armature.trace_through, armature.allow_in_graph])
def test_classes_and_generators_are_refused(call: Any) -> None:
    for target in (Caller, (lambda: (yield)), torch.nn.Linear(1, 1)):
        with pytest.raises(BadTarget):
            call(target)


def test_a_later_rule_goes_before_trace_through() -> None:
    armature.trace_through(opaque_python)
    with armature.rules.skip(opaque_python), pytest.raises(Unsupported):
        whole(lambda x: opaque_python(x) + 1)(X)


def test_substitute_is_traced_in_place_of_the_function() -> None:
    def f(x: Any) -> Any:
        return x * math.fsum([1.0, 2.0, 3.0]) + math.gamma(5.0)

    calls: list[int] = []

    @armature.substitute(math.gamma)
    def gamma(x: float, /) -> float:
        result = 1.0
        for factor in range(1, int(x)):
            result = result * factor
        return result

    assert gamma(5.0) == math.gamma(5.0) and not calls
    assert torch.equal(whole(f)(X), f(X))


def slow(values: Any, start: Any = 0, *, key: Any = None) -> Any:
    raise NotImplementedError("it is never called in compiled code")


def test_substitute_of_a_python_function_and_its_keywords() -> None:
    @armature.substitute(slow)
    def quick(values: Any, start: Any = 0, *, key: Any = None) -> Any:
        for value in values:
            start = start + (value if key is None else key(value))
        return start

    compiled = whole(lambda x: slow([x, x], start=x) + slow([x], key=lambda v: v * 3))
    assert torch.equal(compiled(X), X * 3 + X * 3)


def no_start(values: Any, *, key: Any = None) -> Any: ...
def other_name(items: Any, start: Any = 0, *, key: Any = None) -> Any: ...
def other_default(values: Any, start: Any = 1, *, key: Any = None) -> Any: ...
def other_kind(values: Any, start: Any = 0, key: Any = None) -> Any: ...
def no_default(values: Any, start: Any, *, key: Any = None) -> Any: ...
def catches_all(*args: Any, **kwargs: Any) -> Any: ...


@pytest.mark.parametrize("wrong", [no_start, other_name, other_default, other_kind, no_default, catches_all])
def test_a_polyfill_with_another_signature_is_refused_and_both_are_named(wrong: Any) -> None:
    with pytest.raises(SignatureMismatch) as caught:
        armature.substitute(slow)(wrong)
    assert f"{wrong.__module__}.{wrong.__name__}(" in str(caught.value)
    assert f"{__name__}.slow(values, start=0, *, key=None)" in str(caught.value)
    assert not manager().user.declared
    assert armature.substitute(slow, check_signature=False)(wrong) is wrong


def test_a_polyfill_is_a_python_function() -> None:
    with pytest.raises(BadTarget, match="Python function"):
        armature.substitute(math.sqrt)(math.cbrt)
    with pytest.raises(WrongArgument):
        armature.substitute(math.sqrt, check_signature="no")  # type: ignore[arg-type]


def test_substitute_of_what_tells_no_signature() -> None:
    @armature.substitute(itertools.groupby)
    def groupby(iterable: Any, key: Any = None) -> Any:
        groups: list[Any] = []
        for item in iterable:
            if groups and groups[-1][0] == item:
                groups[-1][1].append(item)
            else:
                groups.append((item, [item]))
        return iter(groups)

    def f(x: Any) -> Any:
        for key, items in itertools.groupby([1, 1, 2]):
            x = x * key + len(list(items))
        return x

    assert torch.equal(whole(f)(X), f(X))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: armature.disable(3), "armature.disable"),
        (lambda: armature.allow_in_graph(3), "armature.allow_in_graph"),
        (lambda: armature.trace_through(3), "armature.trace_through"),
        (lambda: armature.substitute(3), "armature.substitute"),
    ],
)
def test_a_wrong_target_names_the_call_that_got_it(call: Callable[[], object], name: str) -> None:
    with pytest.raises(NotCallable, match=f"{name} was given 3, which can't be called"):
        call()


def test_a_name_is_told_where_names_go() -> None:
    with pytest.raises(NotCallable, match=r"names are for rules: armature.rules.skip\('torch.add'\)"):
        armature.allow_in_graph("torch.add")


def test_a_wrong_argument_names_its_call() -> None:
    with pytest.raises(WrongArgument, match=r"documentation of armature\.disable"):
        armature.disable(recursive=1)


def test_what_nothing_can_stand_for() -> None:
    with pytest.raises(BadTarget, match="forward"):
        armature.substitute(torch.nn.Linear(1, 1))
    with pytest.raises(BadTarget, match="it is what it should stand for"):
        armature.substitute(slow)(slow)
    with pytest.raises(SignatureMismatch, match=r"def f\(values"):
        armature.substitute(slow)(lambda: 1)  # type: ignore[misc]
