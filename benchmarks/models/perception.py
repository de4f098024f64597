"""Vision and speech models of Hugging Face transformers, small and with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from .case import Case

SIDE, PATCH, BATCH, LABELS = 32, 8, 2, 5
ENCODER = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "image_size": SIDE, "patch_size": PATCH,
}  # fmt: skip


def images() -> torch.Tensor:
    return torch.rand(BATCH, 3, SIDE, SIDE)


def classified(model: Any, config: Any) -> Callable[[], Case]:
    """An image classifier, with labels."""

    def build() -> Case:
        return Case(model(config()), kwargs={"pixel_values": images(), "labels": torch.randint(0, LABELS, (BATCH,))})

    return build


def swin() -> Any:
    return hf.SwinConfig(
        image_size=SIDE, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=LABELS
    )


def convnext() -> Any:
    return hf.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], num_labels=LABELS)


def resnet() -> Any:
    return hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=LABELS)


def clip() -> Case:
    text = hf.CLIPTextConfig(
        vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=32, projection_dim=16, bos_token_id=1, eos_token_id=98,
    )  # fmt: skip
    vision = hf.CLIPVisionConfig(**ENCODER, projection_dim=16)
    config = hf.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=16)
    kwargs = {"input_ids": torch.randint(3, 98, (BATCH, 8)), "pixel_values": images(), "return_loss": True}
    return Case(hf.CLIPModel(config), kwargs=kwargs)


def segformer() -> Case:
    config = hf.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], num_attention_heads=[1, 2],
        patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=LABELS,
    )  # fmt: skip
    labels = torch.randint(0, LABELS, (BATCH, SIDE, SIDE))
    model = hf.SegformerForSemanticSegmentation(config)
    return Case(model, kwargs={"pixel_values": images(), "labels": labels})


def whisper() -> Case:
    config = hf.WhisperConfig(
        vocab_size=64, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=30,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    kwargs = {"input_features": torch.rand(BATCH, 16, 60), "labels": torch.randint(4, 64, (BATCH, 8))}
    return Case(hf.WhisperForConditionalGeneration(config), kwargs=kwargs)


def wav2vec2() -> Case:
    config = hf.Wav2Vec2Config(
        vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        conv_dim=[16, 16], conv_stride=[5, 4], conv_kernel=[10, 4], num_feat_extract_layers=2,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, mask_time_prob=0.0, layerdrop=0.0,
    )  # fmt: skip
    return Case(hf.Wav2Vec2Model(config), kwargs={"input_values": torch.rand(BATCH, 400)})


CASES: dict[str, Callable[[], Case]] = {
    "vit": classified(hf.ViTForImageClassification, lambda: hf.ViTConfig(**ENCODER, num_labels=LABELS)),
    "deit": classified(hf.DeiTForImageClassification, lambda: hf.DeiTConfig(**ENCODER, num_labels=LABELS)),
    "beit": classified(hf.BeitForImageClassification, lambda: hf.BeitConfig(**ENCODER, num_labels=LABELS)),
    "dinov2": classified(hf.Dinov2ForImageClassification, lambda: hf.Dinov2Config(**ENCODER, num_labels=LABELS)),
    "swin": classified(hf.SwinForImageClassification, swin),
    "convnext": classified(hf.ConvNextForImageClassification, convnext),
    "resnet": classified(hf.ResNetForImageClassification, resnet),
    "clip": clip,
    "segformer": segformer,
    "whisper": whisper,
    "wav2vec2": wav2vec2,
}
