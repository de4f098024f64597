"""DistributedDataParallel: it sums gradients over all processes, one bucket at a time, while backward computes the next
ones.

A single backward graph returns all gradients at its end. So the graph of the wrapped module is cut where backward has
computed the last gradient of a bucket: before the first forward step that uses a parameter of the bucket.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from torch import fx

from armature.plugin_api import Pass, Services, Split, data_parallel


def cut_at_buckets(split: object, ctx: Services) -> object:
    """Cut the graph for each bucket but the last, if a DistributedDataParallel runs it."""
    parallel = data_parallel.active()
    if parallel is None or not isinstance(split, Split):
        return split
    nodes = list(split.module.graph.nodes)
    return attrs.evolve(split, cuts=split.cuts | {nodes[k] for k in beginnings(parallel, split, nodes)})


def beginnings(parallel: object, split: Split, nodes: list[fx.Node]) -> Iterator[int]:
    """Where each bucket's piece begins. Steps before all of them produce no gradients, and form no piece."""
    place = {node: k for k, node in enumerate(nodes)}
    used_by = ((id(real), node.users) for node, real in split.parameters.items() if node.users)
    first = {key: min(map(place.__getitem__, users)) for key, users in used_by}
    used = [parameter for parameter in data_parallel.reduced(parallel) if id(parameter) in first]
    if not data_parallel.keeps_buckets(parallel):
        used.sort(key=lambda parameter: -first[id(parameter)])
    buckets = data_parallel.buckets(parallel, used) if used else []
    found = sorted({min(first[id(used[k])] for k in bucket) for bucket in buckets})
    yield from found[1:]


PASSES = (Pass("data-parallel-buckets", "split", cut_at_buckets),)
