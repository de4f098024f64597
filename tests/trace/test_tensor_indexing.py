"""Indexing of every kind: reads, writes and operators in place, in one graph or after a break, as in eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import armature
from tests.support.tensor_programs import compare
from tests.support.tracing import break_of


def inputs() -> tuple[torch.Tensor, ...]:
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    return x, torch.tensor([True, False, True]), torch.tensor([0, 2]), torch.tensor([[0, 1], [2, 0]])


def function(body: str) -> Any:
    """A function of a tensor, a mask and two tensors of indices."""
    namespace: dict[str, Any] = {"torch": torch}
    exec(f"def program(x, m, i, j):\n    {body}", namespace)
    return namespace["program"]


READS = [
    "x[None]", "x[...,None]", "x[...]", "x[None,...,None,0]", "x[i]", "x[:,i]", "x[i,:,None]", "x[i,i]", "x[j]",
    "x[:,j]", "x[j,j]", "x[0,i]", "x[i,0]", "x[i,1:3]", "x[1:3,i]", "x[None,i]", "x[i,None]", "x[i,None,i]",
    "x[[0,2]]", "x[[0,2],[1,3]]", "x[[[0,1],[2,0]]]", "x[(0,1)]", "x[-1,-2]", "x[::2,1::2]", "x[True]", "x[False]",
    "x[torch.tensor(1)]", "x[torch.tensor(1):]", "x[:torch.tensor(2)]", "x[i+5]", "x[1:100]", "x[5:]", "x[2:1]",
    "x[slice(0,2),slice(None)]", "x[range(2)]", "x[torch.tensor([],dtype=torch.long)]", "x[i.int()]",
    "x.index_select(0,i)", "x.take(i)", "x.gather(1,j)", "x[..., 0:0]",
]  # fmt: skip
READS_THAT_BREAK = [
    "x[m]", "x[m,0]", "x[m,1:]", "x[m.nonzero()[:,0]]", "x[::-1]", "x[5]", "x[0,0,0]", "x[[True,False,True]]",
    "x[i.to(torch.uint8)]", 'x["a"]', "x[1.0]", "x[x>0]", "x[m][:,0]", "x.masked_select(x>0)",
]  # fmt: skip
WRITES = [
    "x[x>0]=0", "x[m]=1.5", "x[m,1]=torch.tensor(2.)", "x[i]=x[i]*2", "x[i,i]=torch.tensor([7.,8.])", "x[:,i]=0",
    "x[0]=x[1]", "x[0,0]=5", "x[...]=1", "x[...,0]=torch.tensor([1,2,3])", "x[1:,::2]=torch.ones(2,2)", "x[None]=3",
    "x[j]=torch.ones(4)", "x[[0,2]]=0", "x[True]=0", "x[torch.tensor(1)]=0", "x[0]=True",
    "x[0,0]=x.sum()", "x.index_put_((i,i),torch.ones(2),accumulate=True)", "x.index_put_((i,),torch.tensor(2.))",
    "x.index_add_(0,i,torch.ones(2,4),alpha=2)", "x.index_copy_(0,i,torch.ones(2,4))", "x.index_fill_(0,i,3)",
    "x.scatter_(1,j,9.)", "x.scatter_add_(1,j,torch.ones(2,2))", "x.scatter_reduce_(1,j,torch.ones(2,2),'amax')",
    "x.masked_fill_(x>0,-1)", "x.masked_scatter_(x>0,torch.ones(12))", "x.put_(i,torch.ones(2))", "x.t()[0]=4",
    "x.view(-1)[::2]=4", "x[i][0]=5", "x.diagonal().fill_(3)", "x[0].add_(x[1])", "x[0],x[1]=x[1],x[0]", "x+=1",
    "x*=x", "x[0]+=1", "x[:,1]*=x[:,2]", "x-=x.t()[:,:1].sum()", "x.data[0]=9", "x.detach()[0]=9", "x.zero_()",
    "x.copy_(torch.arange(4))", "x.squeeze_()", "x.t_()", "x.transpose_(0,1)", "x.unsqueeze_(0)",
    "x.swapaxes_(0,1)", "x.clamp_(min=0)", "x.normal_()", "x.random_(0,5)", "x.uniform_()", "x.bernoulli_(0.5)",
    "x.exponential_()", "x[x.sum()>5]=7", "x[m[0]]=7", "x.t()[m[1]]=7", "x[0,1:][m[0]]=True",
    "y=torch.arange(3); y[m[0]]=2.7; x+=y.sum()", "y=x>0; y[m[0]]=2.7; x+=y", "x[m[0]]=float('nan'); x.nan_to_num_()",
]  # fmt: skip
WRITES_THAT_BREAK = [
    "x[m]=x[m]+1", "x[5]=0", "x[0]='a'", "x[m]+=1", "x.data=torch.zeros(2)", "x.copy_(torch.arange(5))",
    "x.resize_(2,2)", "x.requires_grad_()", "x[i,i]=torch.ones(3)",
]  # fmt: skip


@pytest.mark.parametrize("text", READS)
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_read(text: str) -> None:
    compare(function(f"return {text}"), inputs, fullgraph=True)


@pytest.mark.parametrize("text", READS_THAT_BREAK)
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_read_with_a_break(text: str) -> None:
    compare(function(f"return {text}, x + 1"), inputs, fullgraph=False)


@pytest.mark.parametrize("text", WRITES)
def test_write(text: str) -> None:
    compare(function(f"y = x.clone()\n    {text}\n    return x, x.sum() + y.sum()"), inputs, fullgraph=True)


@pytest.mark.parametrize("text", WRITES_THAT_BREAK)
def test_write_with_a_break(text: str) -> None:
    compare(function(f"y = x.clone()\n    {text}\n    return x, x.sum() + y.sum()"), inputs, fullgraph=False)


VIEWS = {
    "transpose": lambda x: x.transpose(0, -1),
    "reverse": lambda x: x.permute(tuple(reversed(range(x.dim())))),
    "squeeze": lambda x: x.squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(min(x.dim(), 1)),
    "expand": lambda x: x.unsqueeze(0).expand(3, *x.shape),
    "slice": lambda x: x[:1] if x.dim() else x,
    "narrow": lambda x: x.narrow(-1, 0, 1) if x.dim() else x,
}
SHAPES = [(1, 6), (6, 1), (1, 1), (2, 1, 3), (1, 2, 3), (1, 6, 1)]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(SHAPES).flatmap(lambda s: st.tuples(st.just(s), st.permutations(range(len(s))))),
    st.lists(st.sampled_from(sorted(VIEWS)), min_size=1, max_size=3),
)
def test_strides_of_views(layout: tuple[tuple[int, ...], list[int]], names: list[str]) -> None:
    shape, order = layout

    def views(x: torch.Tensor) -> list[torch.Tensor]:
        found = [x]
        for name in names:
            found.append(VIEWS[name](found[-1]))
        return found

    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape).permute(order)
    armature.reset()
    for expected, found in zip(views(x), armature.compile(views, fullgraph=True)(x), strict=True):
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def asks_for_a_stride(x):
    return x.t().sort(0)[0].stride(-1), x.t().stride()


def asks_for_the_stride_of_a_row(x):
    return x.t().sort(0)[0].stride(0), x.contiguous() is x


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (2, 3)])
def test_a_stride_along_one_element_is_known_to_some_operators_only(shape: tuple[int, ...]) -> None:
    def make() -> tuple[torch.Tensor, ...]:
        return (torch.ones(shape),)

    for program, asked in ((asks_for_a_stride, shape[0]), (asks_for_the_stride_of_a_row, shape[1])):
        assert break_of(program, *make()) == ("unknown-stride" if asked == 1 else "")
        compare(program, make, fullgraph=False)


def asks_for_known_strides(x):
    rows = (x.t() * 1).masked_fill(x.t() > 2, 1.0).transpose(0, 1)
    chunks = rows.reshape(-1, 1, 2, 1)
    steps = list(chunks.stride())
    return chunks.as_strided((*chunks.shape[:2], 1, 1), steps), steps, (x.t() * 1).stride(), (x @ x.t()).stride()


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (2, 3)])
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_strides_along_one_element_after_views_and_elementwise_operators(shape: tuple[int, ...], backend: str) -> None:
    armature.reset()
    compiled = armature.compile(asks_for_known_strides, fullgraph=True, backend=backend)
    for x in (torch.rand(shape), torch.rand(shape[::-1]).t()):
        assert [str(one) for one in compiled(x)] == [str(one) for one in asks_for_known_strides(x)]
