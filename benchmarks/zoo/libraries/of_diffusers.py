"""diffusers: its transformers, UNets, control nets and autoencoders, shrunk by the names of their arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.zoo.case import Build, Case, Library
from benchmarks.zoo.shrink import Scale, shrunk

WIDTH, WORDS, FRAMES, SIDE = 32, 6, 4, 16
# Constructor arguments in addition to the shrunk defaults, by class.
RECIPES: dict[str, dict[str, Any]] = {
    "UNet2DConditionModel": {
        "block_out_channels": (32, 64),
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "cross_attention_dim": WIDTH,
        "attention_head_dim": 8,
        "layers_per_block": 1,
        "norm_num_groups": 8,
    },
    "UNet2DModel": {"block_out_channels": (32, 64), "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
                    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "layers_per_block": 1, "norm_num_groups": 8},
    "AutoencoderKL": {"block_out_channels": (16, 32), "down_block_types": ("DownEncoderBlock2D",) * 2,
                      "up_block_types": ("UpDecoderBlock2D",) * 2, "norm_num_groups": 8, "layers_per_block": 1},
    "ControlNetModel": {"block_out_channels": (32, 64), "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
                        "cross_attention_dim": WIDTH, "attention_head_dim": 8, "layers_per_block": 1,
                        "norm_num_groups": 8, "conditioning_embedding_out_channels": (16, 32)},
    "FluxTransformer2DModel": {"in_channels": 4, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16,
                               "num_attention_heads": 2, "joint_attention_dim": WIDTH, "pooled_projection_dim": WIDTH,
                               "axes_dims_rope": (4, 4, 8)},
    "VQModel": {"block_out_channels": (16, 32), "down_block_types": ("DownEncoderBlock2D",) * 2,
                "up_block_types": ("UpDecoderBlock2D",) * 2, "norm_num_groups": 8, "latent_channels": 3},
}  # fmt: skip
PARTS = ("transformers", "unets", "autoencoders", "controlnets")


def model_classes() -> dict[str, type[torch.nn.Module]]:
    """Every public model."""
    import diffusers  # noqa: PLC0415

    found: dict[str, type[torch.nn.Module]] = {}
    for name in dir(diffusers):
        if name.startswith(("Flax", "Auto", "Multi")) and not name.startswith("Autoencoder"):
            continue
        value = getattr(diffusers, name, None) if name[0].isupper() else None
        if isinstance(value, type) and issubclass(value, diffusers.ModelMixin) and value is not diffusers.ModelMixin:
            found[name] = value
    return found


def names() -> Iterator[str]:
    """The models' classes."""
    yield from sorted(model_classes())


def config_of(made: type[torch.nn.Module], scale: Scale) -> dict[str, Any]:
    """Constructor arguments: shrunk defaults, then the recipe of the class."""
    parameters = inspect.signature(made.__init__).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    changes = shrunk(defaults, scale)
    if "num_attention_heads" in defaults and "attention_head_dim" in defaults:
        changes |= {"num_attention_heads": 2, "attention_head_dim": 16}
    keeps = [name for name in changes if "channels" in name and "block" not in name]
    for name in keeps:
        del changes[name]
    return changes | RECIPES.get(made.__name__, {})


def attribute(model: Any, *options: str, default: int) -> int:
    """The first of a model's configuration values that is an integer."""
    for name in options:
        value = model.config.get(name)
        if isinstance(value, (list, tuple)) and value:
            value = value[0]
        if isinstance(value, int):
            return value
    return default


def inputs(model: Any, video: bool, flat: bool) -> dict[str, Any]:
    """Arguments of `forward` by their names."""
    channels = attribute(model, "in_channels", "num_channels", "latent_channels", default=4)
    text = attribute(model, "cross_attention_dim", "joint_attention_dim", "text_embed_dim", "caption_channels",
                     "text_dim", "encoder_hidden_size", "caption_feat_dim", "cap_feat_dim", default=WIDTH)  # fmt: skip
    pooled = attribute(model, "pooled_projection_dim", "embedding_dim", "text_embed_dim", default=WIDTH)
    picture = torch.randn(1, channels, FRAMES, SIDE, SIDE) if video else torch.randn(1, channels, SIDE, SIDE)
    if flat:
        picture = torch.randn(1, 16, channels)
    words = torch.randn(1, WORDS, text)
    return {
        "sample": picture,
        "hidden_states": picture,
        "x": picture,
        "timestep": torch.tensor([3]),
        "timestep_ratio": torch.tensor([0.3]),
        "encoder_hidden_states": words,
        "encoder_attention_mask": torch.ones(1, WORDS, dtype=torch.bool),
        "encoder_hidden_states_mask": torch.ones(1, WORDS, dtype=torch.bool),
        "pooled_projections": torch.randn(1, pooled),
        "controlnet_cond": torch.randn(1, 3, SIDE * 8, SIDE * 8),
        "conditioning_scale": 1.0,
        "guidance": torch.tensor([1.0]),
        "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(WORDS, 3),
        "class_labels": torch.tensor([1]),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        "proj_embedding": torch.randn(1, WIDTH),
        "img_shapes": [(1, 4, 4)],
        "txt_seq_lens": [WORDS],
        "clip_text_pooled": torch.randn(1, 1, WIDTH),
    }


def build(name: str, scale: Scale, video: bool, flat: bool) -> Case:
    """A model and the arguments that its `forward` requires."""
    made = model_classes()[name]
    model = made(**config_of(made, scale))
    known = inputs(model, video, flat)
    wanted = inspect.signature(model.forward).parameters.values()
    optional = ("guidance", "encoder_hidden_states", "pooled_projections", "img_ids", "txt_ids", "timestep")
    given = {p.name: known[p.name] for p in wanted if p.name in known and (p.default is p.empty or p.name in optional)}
    return Case(model, (), given)


def ways(name: str) -> Iterator[Build]:
    """Pictures, videos and rows of patches."""
    video = any(word in name for word in ("3D", "Video", "Temporal", "Motion", "Wan", "LTX", "Mochi", "Cosmos"))
    for scale in (Scale(patch=2, picture=SIDE), Scale(width=64, patch=2, picture=SIDE)):
        for is_video, flat in ((video, False), (False, True), (not video, False)):
            yield functools.partial(build, name, scale, is_video, flat)


LIBRARY = Library("diffusers", ("diffusers",), names, ways)
