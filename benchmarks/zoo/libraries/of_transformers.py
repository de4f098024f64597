"""transformers: the base model of every configuration, and one model with a head for each."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from benchmarks.zoo.building import LARGE
from benchmarks.zoo.case import Build, Case, Library, NotBuildable
from benchmarks.zoo.shrink import UNCHANGED, Scale, shrunk

BATCH, LENGTH, AUDIO = 2, 12, 3200
HEADS = (
    "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "MASKED_LM", "SPEECH_SEQ_2_SEQ", "CTC",
    "IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "UNIVERSAL_SEGMENTATION", "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION",
    "VIDEO_CLASSIFICATION", "AUDIO_CLASSIFICATION", "TEXT_TO_WAVEFORM", "TEXT_TO_SPECTROGRAM", "MASK_GENERATION",
    "KEYPOINT_MATCHING", "KEYPOINT_DETECTION", "TIME_SERIES_PREDICTION", "ZERO_SHOT_IMAGE_CLASSIFICATION",
    "ZERO_SHOT_OBJECT_DETECTION", "SEQUENCE_CLASSIFICATION", "QUESTION_ANSWERING", "PRETRAINING", "IMAGE_TO_IMAGE",
    "POSE_ESTIMATION", "IMAGE_MATTING", "BACKBONE", "TABLE_QUESTION_ANSWERING", "DECISION",
)  # fmt: skip


def mapping(kind: str) -> Mapping[str, Any]:
    """Maps model types to class names."""
    from transformers.models.auto import modeling_auto  # noqa: PLC0415

    name = f"MODEL_FOR_{kind}_MAPPING_NAMES" if kind else "MODEL_MAPPING_NAMES"
    return dict(getattr(modeling_auto, name, {}))


def class_names(kind: str) -> Iterator[tuple[str, str]]:
    """Model type and class name, each class once."""
    seen: set[str] = set()
    for model_type, found in mapping(kind).items():
        for name in (found,) if isinstance(found, str) else found:
            if name not in seen:
                seen.add(name)
                yield model_type, name


def base_names() -> Iterator[str]:
    """`type:Class` of every base model."""
    yield from (f"{model_type}:{name}" for model_type, name in class_names(""))


def head_names() -> Iterator[str]:
    """`type:Class` of one model with a head for each type, in the order of HEADS."""
    taken: set[str] = set()
    base = {name for _, name in class_names("")}
    for kind in HEADS:
        for model_type, name in class_names(kind):
            if model_type not in taken and name not in base:
                taken.add(model_type)
                yield f"{model_type}:{name}"


LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "depth")


def small_config(default: Any, scale: Scale) -> Any:
    """A copy of a configuration with small values, including its parts."""
    fields = {k: v for k, v in vars(default).items() if not k.startswith("_")}
    changes = shrunk(fields, scale)
    for name, part in fields.items():
        if is_config(part):
            changes[name] = small_config(part, scale).to_dict()
    changes |= by_layer(fields, changes)
    for name, value in fields.items():
        special = re.search(r"(token_id|_token_index|_id)$", name) and isinstance(value, int)
        if special and value >= scale.vocabulary:
            changes[name] = scale.vocabulary - 1 - len(name) % 8
        elif name == "prediction_length" and value is None:
            changes[name] = 8
    rope = fields.get("rope_parameters")
    if isinstance(rope, dict) and "mrope_section" in rope:
        third = scale.head_dim // 6
        sections = [scale.head_dim // 2 - 2 * third, third, third]
        changes["rope_parameters"] = {**rope, "mrope_section": sections}
    changed = default.to_dict() | changes
    for name in ("model_type", "transformers_version", "architectures"):
        changed.pop(name, None)
    return type(default)(**changed)


def by_layer(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Truncate lists that have an item for each layer to the number of layers, keeping each kind of layer if
    possible."""
    counts = [name for name in LAYER_COUNTS if name in changes and isinstance(fields[name], int)]
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if not isinstance(value, (list, tuple)) or isinstance(changes.get(name), dict):
            continue
        count = next((c for c in counts if fields[c] == len(value)), None)
        if count is None:
            continue
        kinds = list(dict.fromkeys(value)) if all(isinstance(item, str) for item in value) else list(value)
        found[name] = type(value)(kinds[i % len(kinds)] for i in range(changes[count]))
    return found


def is_config(value: object) -> bool:
    """Whether it is a configuration of the library."""
    return hasattr(value, "to_dict") and hasattr(value, "model_type")


def parts(config: Any) -> Iterator[Any]:
    """A configuration and its parts."""
    yield config
    for value in vars(config).values():
        if is_config(value):
            yield from parts(value)


def first_number(config: Any, *names: str, default: int) -> int:
    """The first of these fields that is an integer, in the configuration or its parts."""
    for name in names:
        for part in parts(config):
            value = vars(part).get(name)
            if isinstance(value, (list, tuple)) and value and isinstance(value[0], int):
                value = value[0]
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return default


def words(config: Any, length: int = LENGTH) -> torch.Tensor:
    """Tokens that are not special ones."""
    most = first_number(config, "vocab_size", "text_vocab_size", default=64)
    return torch.randint(min(8, most - 1), max(min(most, 100), 9), (BATCH, length))


def picture(config: Any) -> torch.Tensor:
    """A picture of the size in the configuration."""
    side = first_number(config, "image_size", "input_size", "img_size", default=64)
    channels = first_number(config, "num_channels", "in_channels", "in_chans", default=3)
    return torch.randn(BATCH, channels, side, side)


def video(config: Any) -> torch.Tensor:
    """Frames, channels, height, width."""
    frames = first_number(config, "num_frames", "frames_per_clip", default=4)
    return picture(config).unsqueeze(1).repeat(1, frames, 1, 1, 1)


def features(config: Any) -> torch.Tensor:
    """A spectrogram in Whisper's format: bins, then time."""
    bins = first_number(config, "num_mel_bins", "feature_size", "input_dim", "num_features", default=80)
    time = 2 * first_number(config, "max_source_positions", default=32)
    return torch.randn(BATCH, bins, min(time, 3000))


def series(config: Any) -> torch.Tensor:
    """Past values of a time series."""
    length = first_number(config, "context_length", default=16) + max(getattr(config, "lags_sequence", None) or [0])
    channels = first_number(config, "num_input_channels", "input_size", default=1)
    return torch.randn(BATCH, length, channels) if channels > 1 else torch.randn(BATCH, length)


def times(config: Any, length: int) -> torch.Tensor:
    """Features of points in time."""
    return torch.randn(BATCH, length, first_number(config, "num_time_features", default=1))


def hidden(config: Any) -> torch.Tensor:
    """Hidden states."""
    return torch.randn(BATCH, LENGTH, first_number(config, "hidden_size", "d_model", default=32))


Maker = Callable[[Any], Any]
INPUTS: dict[str, Maker] = {
    "input_ids": words,
    "decoder_input_ids": words,
    "attention_mask": lambda c: torch.ones(BATCH, LENGTH, dtype=torch.long),
    "decoder_attention_mask": lambda c: torch.ones(BATCH, LENGTH, dtype=torch.long),
    "pixel_values": picture,
    "pixel_values_videos": video,
    "input_values": lambda c: torch.randn(BATCH, AUDIO),
    "input_features": features,
    "bbox": lambda c: torch.tensor([1, 2, 30, 40]).repeat(BATCH, LENGTH, 1),
    "past_values": series,
    "past_time_features": lambda c: times(c, series(c).shape[1]),
    "past_observed_mask": lambda c: torch.ones_like(series(c)),
    "future_values": lambda c: torch.randn(BATCH, first_number(c, "prediction_length", default=8)),
    "future_time_features": lambda c: times(c, first_number(c, "prediction_length", default=8)),
    "pixel_mask": lambda c: torch.ones(picture(c).shape[0], *picture(c).shape[2:], dtype=torch.long),
    "inputs_embeds": hidden,
    "encoder_hidden_states": hidden,
    "hidden_states": hidden,
    "visual_feats": lambda c: torch.randn(BATCH, 4, first_number(c, "visual_feat_dim", default=2048)),
    "visual_pos": lambda c: torch.rand(BATCH, 4, 4),
    "inputs": lambda c: words(c, 64) if hasattr(c, "vocab_size") else hidden(c),
    "states": lambda c: torch.randn(BATCH, 4, first_number(c, "state_dim", default=17)),
    "actions": lambda c: torch.randn(BATCH, 4, first_number(c, "act_dim", default=4)),
    "rewards": lambda c: torch.randn(BATCH, 4, 1),
    "returns_to_go": lambda c: torch.randn(BATCH, 4, 1),
    "timesteps": lambda c: torch.arange(4).repeat(BATCH, 1),
    "input_points": lambda c: torch.rand(BATCH, 1, 2, 2) * 16,
    "image_embeds": hidden,
    "spectrogram": lambda c: torch.randn(BATCH, 20, first_number(c, "model_in_dim", "num_mel_bins", default=80)),
    "speaker_embeddings": lambda c: torch.randn(BATCH, first_number(c, "speaker_embedding_dim", default=32)),
}  # fmt: skip
MAIN = ("input_ids", "pixel_values", "input_values", "input_features", "past_values", "pixel_values_videos", "inputs")


def arguments(model: Any, config: Any, mode: str) -> dict[str, Any]:
    """Arguments of `forward`.

    mode: "needed", those without default and the main one; "main", text too; "all", pictures, sound and text; "video"
    and "sound": pictures with a dimension of frames, sound with one of channels.
    """
    parameters = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    wanted = [name for name, p in parameters.items() if p.default is p.empty and name in INPUTS]
    if main in parameters and main in INPUTS:
        wanted.append(main)
    if mode in ("main", "all"):
        wanted += [name for name in ("input_ids", "decoder_input_ids", "bbox") if name in parameters]
    if mode == "all":
        wanted += [name for name in MAIN if name in parameters]
    given = {name: INPUTS[name](config) for name in dict.fromkeys(wanted)}
    if "attention_mask" in parameters and "input_ids" in given:
        given["attention_mask"] = torch.ones_like(given["input_ids"])
    if mode == "video" and "pixel_values" in given:
        given["pixel_values"] = video(config)
    if mode == "sound" and "input_values" in given:
        given["input_values"] = given["input_values"].unsqueeze(1)
    image_token = first_number(config, "image_token_id", "image_token_index", default=-1)
    if mode == "all" and image_token >= 0 and "pixel_values" in given and "input_ids" in given:
        count = image_tokens(config)
        given["input_ids"] = torch.cat([torch.full((BATCH, count), image_token), given["input_ids"]], 1)
        given["attention_mask"] = torch.ones_like(given["input_ids"])
    return given


def image_tokens(config: Any) -> int:
    """The number of tokens for a picture."""
    for name in ("image_seq_length", "num_image_tokens", "mm_tokens_per_image", "image_seq_len"):
        if (found := first_number(config, name, default=0)) > 0:
            return found
    side = first_number(config, "image_size", default=32) // first_number(config, "patch_size", default=8)
    return int(side * side / math.pow(first_number(config, "spatial_merge_size", "downsample_factor", default=1), 2))


def build(name: str, scale: Scale, mode: str) -> Case:
    """A model of a small configuration."""
    import transformers  # noqa: PLC0415
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: PLC0415

    model_type, _, class_name = name.partition(":")
    model_class = getattr(transformers, class_name)
    config_class = getattr(model_class, "config_class", None) or CONFIG_MAPPING[model_type]
    config = small_config(config_class(), scale)
    if (size := size_of(model_class, config)) > LARGE:
        raise NotBuildable(f"{size} parameters")
    model = model_class(config)
    return Case(model, (), arguments(model, config, mode))


def size_of(model_class: Any, config: Any) -> int:
    """A model's number of parameters, counted without allocating them; 0 if that is not possible."""
    with contextlib.suppress(RuntimeError, NotImplementedError), torch.device("meta"):
        return sum(p.numel() for p in model_class(config).parameters())
    return 0


ALL = (UNCHANGED,) * 6
SCALES = (
    Scale(),
    Scale(width=64, heads=4, kv_heads=4, picture=64, patch=16),
    Scale(width=64, heads=2, kv_heads=1, layers=4, picture=64, patch=16),
    Scale(width=128, heads=2, kv_heads=2, picture=64, patch=16),
    Scale(width=256, heads=2, kv_heads=2, picture=224, patch=16),
    Scale(width=UNCHANGED, heads=UNCHANGED, kv_heads=UNCHANGED, picture=UNCHANGED, patch=UNCHANGED, experts=UNCHANGED),
    Scale(*ALL, experts=UNCHANGED, picture=UNCHANGED, patch=UNCHANGED),
)
MODES = ("needed", "main", "all", "video", "sound")


def ways(name: str) -> Iterator[Build]:
    """Small scales first; for each the main input, then more inputs."""
    for scale in SCALES:
        for mode in MODES:
            yield functools.partial(build, name, scale, mode)


LIBRARIES = (
    Library("transformers", ("transformers",), base_names, ways),
    Library("transformers-heads", ("transformers",), head_names, ways),
)
