"""Language models of Hugging Face transformers, small and with random weights: loss included where the head has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from .case import Case

VOCABULARY, BATCH, LENGTH = 128, 2, 16
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = SMALL | {"num_key_value_heads": 2}


def tokens() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, LENGTH))


def masked(model: Any, config: Any) -> Callable[[], Case]:
    """An encoder with a head over each token, called with a mask that hides the end of one text."""

    def build() -> Case:
        ids, mask = tokens(), torch.ones(BATCH, LENGTH, dtype=torch.long)
        mask[1, LENGTH // 2 :] = 0
        return Case(model(config()), kwargs={"input_ids": ids, "attention_mask": mask, "labels": ids})

    return build


def causal(model: Any, config: Any) -> Callable[[], Case]:
    """A decoder with a language-model head."""

    def build() -> Case:
        ids = tokens()
        return Case(model(config()), kwargs={"input_ids": ids, "labels": ids})

    return build


def translation(model: Any, config: Any) -> Callable[[], Case]:
    """An encoder and a decoder; the decoder's input is made from the labels."""

    def build() -> Case:
        return Case(model(config()), kwargs={"input_ids": tokens(), "labels": tokens()})

    return build


def t5() -> Any:
    return hf.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
    )


def bart() -> Any:
    return hf.BartConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip


def distilbert() -> Any:
    return hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64
    )


def gpt2() -> Any:
    return hf.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
    )


def opt() -> Any:
    return hf.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, ffn_dim=64, num_attention_heads=4,
        max_position_embeddings=64, word_embed_proj_dim=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip


def bloom() -> Any:
    return hf.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4, pad_token_id=0, bos_token_id=1, eos_token_id=2
    )


def electra() -> Any:
    return hf.ElectraConfig(**SMALL, embedding_size=32)


def mixtral() -> Any:
    return hf.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2)


def gemma() -> Any:
    return hf.GemmaConfig(**GROUPED, head_dim=8)


def mamba() -> Any:
    return hf.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, state_size=8, num_hidden_layers=2)


CASES: dict[str, Callable[[], Case]] = {
    "bert": masked(hf.BertForMaskedLM, lambda: hf.BertConfig(**SMALL)),
    "distilbert": masked(hf.DistilBertForMaskedLM, distilbert),
    "roberta": masked(hf.RobertaForMaskedLM, lambda: hf.RobertaConfig(**SMALL)),
    "electra": masked(hf.ElectraForMaskedLM, electra),
    "gpt2": causal(hf.GPT2LMHeadModel, gpt2),
    "opt": causal(hf.OPTForCausalLM, opt),
    "bloom": causal(hf.BloomForCausalLM, bloom),
    "llama": causal(hf.LlamaForCausalLM, lambda: hf.LlamaConfig(**GROUPED)),
    "qwen2": causal(hf.Qwen2ForCausalLM, lambda: hf.Qwen2Config(**GROUPED)),
    "mistral": causal(hf.MistralForCausalLM, lambda: hf.MistralConfig(**GROUPED, sliding_window=8)),
    "mixtral": causal(hf.MixtralForCausalLM, mixtral),
    "gemma": causal(hf.GemmaForCausalLM, gemma),
    "phi": causal(hf.PhiForCausalLM, lambda: hf.PhiConfig(**SMALL)),
    "mamba": causal(hf.MambaForCausalLM, mamba),
    "t5": translation(hf.T5ForConditionalGeneration, t5),
    "bart": translation(hf.BartForConditionalGeneration, bart),
}
