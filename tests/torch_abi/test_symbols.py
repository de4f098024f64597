"""Contract with torch's symbolic sizes, on whatever torch is installed."""

from __future__ import annotations

from typing import Any

import pytest
import sympy  # type: ignore[import-untyped]
import torch
from torch import fx

from armature.torch_abi import symbols
from armature.torch_abi.fake import DATA_DEPENDENT, FakeWorld
from armature.torch_abi.symbols import LateGuard, Symbols
from armature.torch_abi.varying import Varying


def test_sizes_and_numbers() -> None:
    env = Symbols()
    size, number = env.size(4, "x.size(0)"), env.number(0, "n")
    assert bool(size >= symbols.SMALLEST_SIZE) and bool(size != 1) and not env.guards
    assert not bool(number > 0)
    assert [symbols.text(condition) for condition, _ in env.conditions()] == [f"{number} <= 0"]


def test_a_decision_has_the_users_line() -> None:
    env = Symbols()
    size = env.size(4, "x.size(0)")
    env.where = lambda: "model.py:41"
    assert bool(size > 3)
    assert int(size * 2) == 8
    ((first, line), (second, _)) = env.conditions()
    assert (symbols.text(first), line) == (f"{first.free_symbols.pop()} > 3", "model.py:41")
    assert isinstance(second, sympy.Eq) and symbols.plain(size) == 4


def test_nothing_is_learned_by_dividing_by_what_may_be_zero() -> None:
    env = Symbols()
    n, m = env.number(0, "n"), env.number(0, "m")
    assert int(n * (m + 1) + 6) == 6  # since n is 0; m is any number
    assert symbols.plain(m) is m
    conditions = [condition for condition, _ in env.conditions()]
    assert [condition.subs({symbols.single_symbol(n): 0, symbols.single_symbol(m): 5}) for condition in conditions] == [
        sympy.true
    ]
    size, other = env.size(2, "x.size(0)"), env.size(6, "x.size(1)")
    assert bool(size * 3 == other) and str(other) == f"3*{size}"  # sizes are not zero


def test_no_decisions_after_closing() -> None:
    env = Symbols()
    size = env.size(4, "x.size(0)")
    env.close()
    assert bool(size > 1)
    with pytest.raises(LateGuard):
        bool(size > 3)


def test_text_computes_what_the_symbol_does() -> None:
    env = Symbols()
    n, m = env.number(-7, "n"), env.size(3, "x.size(0)")
    for made in (n // m, n % m, -n * m + 2, torch.sym_max(n, m), torch.sym_min(n, 2), m**2, n // 2 * 3, m / 2,
                 torch.sym_int(n / 2), torch.sym_int(m * 1.7)):  # fmt: skip
        text = symbols.text(symbols.expression(made))
        values = {str(n): -7, str(m): 3}
        assert eval(text, {**symbols.NAMESPACE, **values}) == made.node.hint, text


def test_nodes_compute_what_the_symbol_does() -> None:
    env, graph = Symbols(), fx.Graph()
    n, m = env.size(7, "x.size(0)"), env.size(3, "x.size(1)")
    x = graph.placeholder("x")
    leaves: dict[Any, fx.Node] = {}

    def leaf(symbol: Any) -> fx.Node:
        axis = 0 if symbol == symbols.single_symbol(n) else 1
        return leaves.setdefault(symbol, graph.call_function(torch.ops.aten.sym_size.int, (x, axis)))

    made: dict[Any, Any] = {}
    wanted = [n * m + 1, n // m, n % m, torch.sym_max(n, m), n - 2 * m, torch.sym_int(m * 1.7)]
    graph.output(tuple(symbols.as_node(value, graph, leaf, made) for value in wanted))
    module = fx.GraphModule({}, graph)
    assert module(torch.empty(7, 3)) == (22, 2, 1, 7, 1, 5)
    assert module(torch.empty(9, 4)) == (37, 2, 1, 9, 1, 6)
    assert symbols.as_node(wanted[0], graph, leaf, made) is made[symbols.expression(wanted[0])]


def test_fakes_with_symbolic_sizes() -> None:
    world = FakeWorld()
    x = torch.randn(4, 6, requires_grad=True)
    fake = world.of(x, Varying(frozenset({0})), "x")
    assert isinstance(fake.shape[0], torch.SymInt) and fake.shape[1] == 6
    assert fake.stride() == (6, 1) and fake.requires_grad and fake.is_leaf
    transposed = world.of(torch.randn(5, 4).t(), Varying(frozenset({0, 1})), "y")
    assert transposed.stride()[0] == 1 and isinstance(transposed.stride()[1], torch.SymInt)
    assert not world.of(x * 2, Varying(frozenset({0})), "z").is_leaf
    view = world.of(torch.randn(9, 6)[2:6], Varying(frozenset({0})), "v")
    assert view.storage_offset() == 12 and isinstance(view.shape[0], torch.SymInt)
    assert world.afresh().of(x).shape[0].node.expr == fake.shape[0].node.expr


def test_sizes_of_0_and_1_are_numbers() -> None:
    fake = FakeWorld().of(torch.empty(1, 0, 3), Varying(frozenset({0, 1, 2})), "x")
    assert [type(size) for size in fake.shape] == [int, int, torch.SymInt]


def test_fakes_that_share_memory_with_symbolic_sizes() -> None:
    world = FakeWorld()
    base = torch.randn(8, 4)
    one, other = world.of(base, Varying(frozenset({0})), "x"), world.of(base[1:], Varying(frozenset({0})), "y")
    assert one.untyped_storage()._cdata == other.untyped_storage()._cdata


def test_functions_of_math_on_symbols() -> None:
    env = Symbols(scalar_outputs=True)
    number = env.unknown_float()
    assert symbols.is_unbacked(number) and set(map(str, symbols.symbols_of(number)))
    assert len(symbols.MATH_FUNCTIONS) >= 8
    for function, found in symbols.MATH_FUNCTIONS.items():
        assert found(0.5) == function(0.5), function
        assert isinstance(found(number), torch.SymFloat), function


def test_operators_ask_whether_an_unknown_number_is_1() -> None:
    env = Symbols(scalar_outputs=True)
    number = env.unknown_float()
    with pytest.raises(DATA_DEPENDENT):  # the program may ask too, and is told the truth
        bool(number == 1)
    env.decomposed = True
    assert number != 1 and number != 1.0
    with pytest.raises(DATA_DEPENDENT):
        bool(number == 0)


@pytest.mark.parametrize("rows", [0, 4])
def test_sizes_known_only_at_run_time_become_what_an_operator_requires(rows: int) -> None:
    world = FakeWorld(Symbols(output_shapes=True))
    with world.mode:
        chosen = torch.rand(5, 3)[torch.ones(5, dtype=torch.bool)]
        assert symbols.is_unbacked(chosen.shape[0])
        assert (torch.rand(rows, 3) + chosen).shape == (rows, 3)
    assert not symbols.is_unbacked(chosen.shape[0]) and symbols.plain(chosen.shape[0]) == rows


def test_graphs_that_only_read_known_numbers_depend_on_none() -> None:
    graph = fx.Graph()
    place = graph.placeholder("number")
    read = graph.call_method("item", (place,))
    read.meta["example_value"] = Symbols(scalar_outputs=True).unknown_float()
    assert symbols.depends_on_numbers(graph)
    assert not symbols.depends_on_numbers(graph, {"number"})
    read.meta["example_value"] = Symbols(scalar_outputs=True).create_unbacked_symint()
    assert symbols.depends_on_numbers(graph, {"number"})


def test_sums_of_symbols_that_became_equal() -> None:
    env = Symbols()
    n, m, k = env.number(3, "n"), env.number(3, "m"), env.number(5, "k")
    both = n + m
    assert bool(n == m)
    one, other = symbols.single_symbol(n), symbols.single_symbol(k)
    assert symbols.expression(both + k) == symbols.expression(k + both) == 2 * one + other
    assert symbols.expression((n + k) + m) == 2 * one + other
    assert symbols.TORCHS_SUM(2 * one, other, True)[1] != 2 * one + other, "torch is right by now: exact_sum can go"
    assert symbols.exact_sum(one + other, symbols.single_symbol(env.number(7, "j")), True)[0]  # still said to be one


def test_sums_of_symbols_that_became_numbers() -> None:
    env = Symbols()
    n, m = env.number(0, "n"), env.number(6, "m")
    both = n + m
    assert bool(n == 0)
    assert symbols.expression(both + m) == symbols.expression(both + both) == 2 * symbols.single_symbol(m)
    assert symbols.expression((m + n) + 4) == symbols.single_symbol(m) + 4


def test_symbols_of_a_run_that_became_numbers() -> None:
    env = Symbols(scalar_outputs=True)
    rows, known = env.create_unbacked_symint(), env.number(5, "n")
    assert symbols.was_unbacked(rows) and symbols.was_unbacked(rows + known) and not symbols.was_unbacked(known)
    symbols.assume(rows == 2, "two rows")
    assert symbols.was_unbacked(rows) and not symbols.is_unbacked(rows)


def test_conditions_over_numbers_of_the_program_are_answered_once() -> None:
    class Constant:
        def as_constant(self) -> bool:
            return True

    found, asked = Symbols(), list[str]()
    symbol, later = found.unknown_float(), found.unknown_float()
    place = torch.zeros(())
    found.note_number(place, symbol, 0.5)
    found.answer = lambda words, function, numbers: asked.append(words) or (Constant() if function(*numbers) else None)
    assert bool(symbol < 1.5) and asked == ["{0} < 1.5000000000000000"]
    torch._check(symbol > 0.25)
    found.end_answers()
    found.note_number(place, later)
    assert bool(later < 1.5) and not bool(later >= 1.5) and len(asked) == 2
