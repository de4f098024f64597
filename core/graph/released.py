"""Results whose history `torch.autograd.grad` has released within the graph.

A captured graph calls it with `retain_graph=True`, since AOTAutograd differentiates what a graph returns. The program
may not differentiate such a result again: it is returned without its history, for which nothing is then saved, and gets
one that raises autograd's error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from armature.torch_abi.released import all_released, causes, with_released_history


def without_released(module: fx.GraphModule) -> dict[int, list[int]]:
    """Return the results of the graph whose history is released detached, by position, and give for each the positions
    of the inputs that it depends on."""
    if not any(node.target is torch.autograd.grad for node in module.graph.nodes):
        return {}
    end = module.graph.output_node()
    places = [node.meta for node in module.graph.find_nodes(op="placeholder")]
    given = [meta.get("traced_value", meta.get("example_value")) for meta in places]
    returned: Any = end.args[0]
    results, found = list(returned), dict[int, list[int]]()
    for k, node in enumerate(results):
        fake = node.meta.get("example_value")
        if node.op == "placeholder" or not isinstance(fake, torch.Tensor) or not all_released(fake):
            continue
        found[k] = causes(fake, given)
        with module.graph.inserting_before(end):
            results[k] = module.graph.call_method("detach", (node,))
        results[k].meta.update(node.meta, example_value=fake.detach())
    if found:
        end.args = (tuple(results),)
        end.meta["example_value"] = tuple(node.meta["example_value"] for node in results)
        module.recompile()
    return found


def refusing(run: Callable[..., Any], released: dict[int, list[int]]) -> Callable[..., Any]:
    """Wrap a graph's callable to give these results histories that raise autograd's error."""
    if not released:
        return run

    def call(*args: Any) -> Any:
        results = [*run(*args)]
        for k, inputs in released.items():
            results[k] = with_released_history(results[k], [args[i] for i in inputs])
        return tuple(results)

    return call
