"""x-transformers: its wrappers, and its attention layers with one option each."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.zoo.case import Build, Case, Library

WORDS, LENGTH, WIDTH = 64, 16, 32
LAYERS = {"dim": WIDTH, "depth": 2, "heads": 2, "attn_dim_head": 16}

# Options of a decoder, as the README of the library shows them.
DECODER: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"rotary_pos_emb": True},
    "rotary_xpos": {"rotary_xpos": True},
    "alibi": {"alibi_pos_bias": True, "alibi_num_heads": 1},
    "t5_bias": {"rel_pos_bias": True},
    "dynamic_bias": {"dynamic_pos_bias": True, "dynamic_pos_bias_log_distance": False},
    "glu": {"ff_glu": True},
    "swiglu": {"ff_swish": True, "ff_glu": True},
    "relu_squared": {"ff_relu_squared": True},
    "no_bias": {"ff_no_bias": True},
    "rmsnorm": {"use_rmsnorm": True},
    "simple_rmsnorm": {"use_simple_rmsnorm": True},
    "scalenorm": {"use_scalenorm": True},
    "sandwich_norm": {"sandwich_norm": True},
    "post_norm": {"pre_norm": False},
    "resi_dual": {"resi_dual": True, "resi_dual_scale": 0.1},
    "macaron": {"macaron": True},
    "sandwich": {"sandwich_coef": 1},
    "shift_tokens": {"shift_tokens": 1},
    "gate_residual": {"gate_residual": True},
    "scale_residual": {"scale_residual": True},
    "residual_attention": {"residual_attn": True},
    "qk_norm": {"attn_qk_norm": True},
    "qk_norm_dim_scale": {"attn_qk_norm": True, "attn_qk_norm_dim_scale": True},
    "flash": {"attn_flash": True},
    "talking_heads": {"attn_pre_talking_heads": True, "attn_post_talking_heads": True},
    "sparse_topk": {"attn_sparse_topk": 4},
    "memory_keys": {"attn_num_mem_kv": 4},
    "one_kv_head": {"attn_one_kv_head": True},
    "grouped_kv_heads": {"attn_kv_heads": 1},
    "gate_values": {"attn_gate_values": True},
    "head_scale": {"attn_head_scale": True},
    "attention_on_attention": {"attn_on_attn": True},
    "value_residual": {"attn_add_value_residual": True},
    "forgetting": {"attn_data_dependent_alibi": True},
    "sigmoid_attention": {"attn_sigmoid": True},
    "laser": {"attn_laser": True},
    "softclamp": {"attn_softclamp_logits": True},
    "hyper_connections": {"num_residual_streams": 2},
    "layerscale": {"use_layerscale": True},
    "relu2_no_bias_qk_rms": {"ff_relu_squared": True, "ff_no_bias": True, "attn_qk_norm": True},
    "cross_layer": {"weight_tie_layers": True},
}
WRAPPERS = ("encoder", "vit", "xtransformer", "continuous", "memory_tokens", "recurrent_memory", "emb_frac", "cls")


def names() -> Iterator[str]:
    """Decoders by option, and the wrappers."""
    yield from (f"decoder:{name}" for name in DECODER)
    yield from WRAPPERS


def tokens() -> torch.Tensor:
    """A batch of tokens."""
    return torch.randint(0, WORDS, (2, LENGTH))


def decoder(options: dict[str, Any]) -> Case:
    """A language model."""
    from x_transformers import Decoder, TransformerWrapper  # noqa: PLC0415

    layers = Decoder(**{**LAYERS, **options})
    return Case(TransformerWrapper(num_tokens=WORDS, max_seq_len=LENGTH, attn_layers=layers), (tokens(),))


def wrapped(kind: str) -> Case:
    """One of the library's other models."""
    import x_transformers as lib  # noqa: PLC0415

    encoder, decoder = lib.Encoder(**LAYERS), lib.Decoder(**LAYERS)
    words = {"num_tokens": WORDS, "max_seq_len": LENGTH}
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH - 5]])
    if kind == "encoder":
        return Case(lib.TransformerWrapper(**words, attn_layers=encoder), (tokens(),), {"mask": mask})
    if kind == "vit":
        model = lib.ViTransformerWrapper(image_size=32, patch_size=8, num_classes=10, attn_layers=encoder)
        return Case(model, (torch.randn(2, 3, 32, 32),))
    if kind == "xtransformer":
        sides = {f"{side}_{key}": value for side in ("enc", "dec") for key, value in (words | LAYERS).items()}
        sides = {key: value for key, value in sides.items() if not key.endswith("_dim")}
        return Case(lib.XTransformer(dim=WIDTH, **sides), (tokens(), tokens()), {"mask": mask})
    if kind == "continuous":
        model = lib.ContinuousTransformerWrapper(dim_in=8, dim_out=8, max_seq_len=LENGTH, attn_layers=encoder)
        return Case(model, (torch.randn(2, LENGTH, 8),), {"mask": mask})
    options = {
        "memory_tokens": {"num_memory_tokens": 4},
        "recurrent_memory": {"max_mem_len": 8},
        "emb_frac": {"emb_frac_gradient": 0.5, "post_emb_norm": True},
        "cls": {"use_cls_token": True, "logits_dim": 10},
    }[kind]
    return Case(lib.TransformerWrapper(**words, **options, attn_layers=decoder), (tokens(),))


def ways(name: str) -> Iterator[Build]:
    """One way."""
    kind, _, option = name.partition(":")
    yield functools.partial(decoder, DECODER[option]) if kind == "decoder" else functools.partial(wrapped, kind)


LIBRARY = Library("x-transformers", ("x_transformers",), names, ways)
