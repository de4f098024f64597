"""peft: each of its methods on a tiny language model, and the variants of LoRA."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.zoo.case import Build, Case, Library

TARGETS = ["q_proj", "v_proj"]
VARIANTS: dict[str, dict[str, Any]] = {
    "dora": {"use_dora": True},
    "rslora": {"use_rslora": True},
    "all-linear": {"target_modules": "all-linear"},
    "bias": {"lora_bias": True},
    "modules_to_save": {"modules_to_save": ["lm_head"]},
    "embeddings": {"target_modules": ["embed_tokens", "q_proj"]},
    "layers": {"layers_to_transform": [1]},
    "rank_pattern": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 4}},
    "target_parameters": {"target_modules": [], "target_parameters": ["mlp.gate_proj.weight"]},
    "trainable_tokens": {"trainable_token_indices": [1, 2, 3]},
}
# Fields that methods need besides the modules to adapt; only passed if a configuration has the field.
FIELDS: dict[str, Any] = {
    "task_type": "CAUSAL_LM",
    "target_modules": TARGETS,
    "r": 4,
    "rank": 4,
    "lora_alpha": 8,
    "num_virtual_tokens": 4,
    "num_layers": 2,
    "token_dim": 32,
    "num_attention_heads": 2,
    "num_transformer_submodules": 1,
    "encoder_hidden_size": 32,
    "adapter_len": 4,
    "adapter_layers": 1,
    "block_size": 4,
    "total_step": 10,
    "n_frequency": 16,
    "vb_module": None,
    "num_vectors": 8,
    "vector_length": 4,
    "token_indices": [1, 2, 3],
    "oft_block_size": 4,
}


def names() -> Iterator[str]:
    """Methods, and variants of LoRA."""
    import peft  # noqa: PLC0415

    yield from sorted(str(getattr(kind, "value", kind)).lower() for kind in peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING)
    yield from (f"lora:{name}" for name in VARIANTS)


def language_model() -> Any:
    """A small Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=64, num_key_value_heads=2, **shape))


def build(method: str, fields: dict[str, Any]) -> Case:
    """A small Llama under a method; adapters initialised to zero get random numbers, so that they have an effect."""
    import peft  # noqa: PLC0415

    kinds = peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING
    config_class = next(c for kind, c in kinds.items() if str(getattr(kind, "value", kind)).lower() == method)
    known = inspect.signature(config_class).parameters
    given = {name: value for name, value in fields.items() if name in known and value is not None}
    model = peft.get_peft_model(language_model(), config_class(**given))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_floating_point() and not bool(parameter.any()):
                parameter.normal_(0, 0.02)
    return Case(model, (), {"input_ids": torch.randint(4, 64, (2, 12)), "labels": torch.randint(0, 64, (2, 12))})


def ways(name: str) -> Iterator[Build]:
    """With the fields above, then with fewer."""
    method, _, variant = name.partition(":")
    fields = FIELDS | VARIANTS.get(variant, {})
    yield functools.partial(build, method, fields)
    for left_out in (("r",), ("target_modules",), ("block_size",), ("oft_block_size",), ("r", "oft_block_size")):
        yield functools.partial(build, method, {k: v for k, v in fields.items() if k not in left_out})


LIBRARY = Library("peft", ("peft", "transformers"), names, ways)
