"""Models of Hugging Face transformers with random weights, at a size that a CPU runs in tens of milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers as hf

from .case import Case

VOCABULARY, BATCH, LENGTH, SIDE = 2000, 2, 64, 64
WIDTH, LAYERS, HEADS = 128, 3, 4
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH, "max_position_embeddings": 2 * LENGTH, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
GROUPED = TEXT | {"num_key_value_heads": 2, "use_cache": False}
IMAGE = {
    "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 4 * WIDTH,
    "image_size": SIDE, "patch_size": 8,
}  # fmt: skip


def words() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, LENGTH))


def of_text(model: str, config: str, settings: Mapping[str, Any], labels: bool = True) -> Callable[[], Case]:
    """A language model, with the loss of its head where it has one."""

    def build() -> Case:
        ids = words()
        made = getattr(hf, model)(getattr(hf, config)(**settings))
        return Case(made, kwargs={"input_ids": ids} | ({"labels": ids} if labels else {}))

    return build


def of_images(model: str, config: str, settings: Mapping[str, Any]) -> Callable[[], Case]:
    """A model that looks at images."""

    def build() -> Case:
        made = getattr(hf, model)(getattr(hf, config)(**settings))
        return Case(made, kwargs={"pixel_values": torch.rand(BATCH, 3, SIDE, SIDE)})

    return build


GPT2 = {
    "vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 2 * LENGTH,
    "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
}  # fmt: skip
OPT = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "ffn_dim": 4 * WIDTH,
    "num_attention_heads": HEADS, "max_position_embeddings": 2 * LENGTH, "word_embed_proj_dim": WIDTH,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
}  # fmt: skip
BLOOM = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
}  # fmt: skip
DISTILBERT = {
    "vocab_size": VOCABULARY, "dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 4 * WIDTH,
    "max_position_embeddings": 2 * LENGTH,
}  # fmt: skip
T5 = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 32, "d_ff": 4 * WIDTH, "num_layers": LAYERS,
    "num_heads": HEADS, "decoder_start_token_id": 0, "use_cache": False,
}  # fmt: skip
BART = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": 4 * WIDTH,
    "decoder_ffn_dim": 4 * WIDTH, "max_position_embeddings": 2 * LENGTH, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None, "use_cache": False,
}  # fmt: skip
SWIN = {"image_size": SIDE, "patch_size": 4, "embed_dim": 48, "depths": [2, 2], "num_heads": [3, 6], "window_size": 4}

CASES: dict[str, Callable[[], Case]] = {
    "bert": of_text("BertForMaskedLM", "BertConfig", TEXT),
    "roberta": of_text("RobertaForMaskedLM", "RobertaConfig", TEXT),
    "electra": of_text("ElectraForMaskedLM", "ElectraConfig", TEXT | {"embedding_size": WIDTH}),
    "albert": of_text("AlbertForMaskedLM", "AlbertConfig", TEXT | {"embedding_size": 64}),
    "distilbert": of_text("DistilBertForMaskedLM", "DistilBertConfig", DISTILBERT),
    "gpt2": of_text("GPT2LMHeadModel", "GPT2Config", GPT2),
    "opt": of_text("OPTForCausalLM", "OPTConfig", OPT),
    "bloom": of_text("BloomForCausalLM", "BloomConfig", BLOOM),
    "llama": of_text("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "qwen2": of_text("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    "mistral": of_text("MistralForCausalLM", "MistralConfig", GROUPED | {"sliding_window": 16}),
    "mixtral": of_text("MixtralForCausalLM", "MixtralConfig", GROUPED | {"num_local_experts": 4}),
    "gemma": of_text("GemmaForCausalLM", "GemmaConfig", GROUPED | {"head_dim": 32}),
    "phi": of_text("PhiForCausalLM", "PhiConfig", TEXT | {"use_cache": False}),
    "t5": of_text("T5ForConditionalGeneration", "T5Config", T5),
    "bart": of_text("BartForConditionalGeneration", "BartConfig", BART),
    "vit": of_images("ViTForImageClassification", "ViTConfig", IMAGE),
    "deit": of_images("DeiTForImageClassification", "DeiTConfig", IMAGE),
    "beit": of_images("BeitForImageClassification", "BeitConfig", IMAGE),
    "dinov2": of_images("Dinov2ForImageClassification", "Dinov2Config", IMAGE),
    "swin": of_images("SwinForImageClassification", "SwinConfig", SWIN),
    "convnext": of_images(
        "ConvNextForImageClassification", "ConvNextConfig", {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]}
    ),
    "resnet": of_images(
        "ResNetForImageClassification", "ResNetConfig", {"embedding_size": 32, "hidden_sizes": [64, 128, 256, 256]}
    ),
}
