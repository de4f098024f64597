"""Small values for the fields of configurations, by name: widths, depths, heads, vocabularies, experts, pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

UNCHANGED = 1 << 20  # larger than any field, so that it is not changed


@attrs.frozen
class Scale:
    """The target sizes. `width` is `heads` times `head_dim`; UNCHANGED keeps fields of a kind."""

    width: int = 32
    heads: int = 4
    kv_heads: int = 2
    layers: int = 2
    vocabulary: int = 128
    positions: int = 128
    experts: int = 4
    picture: int = 32
    patch: int = 8

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.width if self.width == UNCHANGED else self.width // self.heads


# The first row whose pattern occurs in the name of an integer field determines its value; None keeps it.
FIELDS: tuple[tuple[str, str | int | None], ...] = (
    (r"token_id$|_token_index$|_id$|^eos|^bos|^pad_", None),
    (r"vocab|num_embeddings$|codebook_size|^n_words$|num_codevectors", "vocabulary"),
    (r"index_", None),
    (r"top_k|experts_per_tok|num_selected|topk|moe_k$", 2),
    (r"n_group$|topk_group|num_expert_group", 1),
    (r"(num|n)_?(local_|routed_)?_?experts$|^n_routed_experts|moe_num_experts", "experts"),
    (r"shared_experts", 1),
    (r"(key_value|kv)_heads|num_key_value|n_head_kv", "kv_heads"),
    (r"head_dim|dim_head|d_kv$|d_head|size_per_head|kv_channels|attention_head_size", "head_dim"),
    (r"rope_(head_)?dim|rotary_dim", "head_dim"),
    (r"heads?$|_heads_|n_?heads?$|num_attention_heads", "heads"),
    (r"(num|n)_.*(layers|blocks|stages)$|layers?$|n_layer|^depth$|num_block|blocks$", "layers"),
    (r"max_.*position|n_positions|max_seq|max_source|max_target|n_ctx|seq_len", "positions"),
    (r"image_size|img_size|input_size$|^size$", "picture"),
    (r"patch_size|patch_stride", "patch"),
    (r"intermediate|ffn_dim|d_ff|d_inner|n_inner|ffn_hidden|dim_feedforward|mlp_dim|ff_dim", "width"),
    (r"lora_rank|_rank$", 8),
    (r"hidden|d_model|n_embd|embed|_dim$|^dim$|width|channels$|projection|d_embed|_size$", "wide"),
)
CHANNELS = re.compile(r"^(num_|in_|n_)?(input_|image_)?(num_)?channels(_in)?$|^in_chans$|num_labels|type_vocab")
KEPT = re.compile(
    r"kernel|stride|conv_|window|pool|scale|factor|groups|ratio|dilation|chunk|_version|num_labels|padding"
)
LISTS_OF_DEPTHS = re.compile(r"depths?$|layers$|num_blocks|repeats|block_counts")
LISTS_OF_WIDTHS = re.compile(r"hidden_sizes|embed_dims?|channels|dims$|widths|hidden_size$|neck|planes")
LISTS_OF_HEADS = re.compile(r"heads")


def small(name: str, value: Any, scale: Scale) -> Any:
    """A small value for a field; the value itself if the name is not known."""
    lowered = name.lower()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return _small_int(lowered, value, scale)
    if isinstance(value, (list, tuple)) and value and all(type(item) is int for item in value):
        return type(value)(_small_list(lowered, list(value), scale))
    return value


def _small_int(name: str, value: int, scale: Scale) -> int:
    if value <= 1 or CHANNELS.search(name) or KEPT.search(name):
        return value
    for pattern, size in FIELDS:
        if re.search(pattern, name):
            if size is None:
                return value
            found = size if isinstance(size, int) else scale.width if size == "wide" else int(getattr(scale, size))
            exact = size in ("heads", "head_dim") and scale.width != UNCHANGED
            return found if value > found or exact else value
    return value


def _small_list(name: str, value: list[int], scale: Scale) -> list[int]:
    if LISTS_OF_DEPTHS.search(name):
        return [1] * len(value)
    if LISTS_OF_HEADS.search(name):
        return [min(item, scale.heads) for item in value]
    if LISTS_OF_WIDTHS.search(name) and max(value) > scale.width:
        return [scale.width] * len(value)
    if re.search(r"image_size|img_size|input_size", name) and max(value) > scale.picture:
        return [scale.picture] * len(value)
    return value


def shrunk(fields: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """The fields that change, with their small values."""
    changes = {name: small(name, value, scale) for name, value in fields.items()}
    return {name: value for name, value in changes.items() if value != fields[name]}
