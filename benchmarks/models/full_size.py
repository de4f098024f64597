"""Models of torchvision and transformers at the size people run them, with random weights, for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .case import Case

TOKENS = 512


def picture(batch: int = 64) -> torch.Tensor:
    """Images, numbers in the dtype that the case is run in later."""
    return torch.rand(batch, 3, 224, 224)


def words(batch: int, vocabulary: int, length: int = TOKENS) -> torch.Tensor:
    """Token ids."""
    return torch.randint(3, vocabulary, (batch, length))


def vision(name: str, batch: int = 64) -> Callable[[], Case]:
    """A model of torchvision by name."""

    def build() -> Case:
        import torchvision  # noqa: PLC0415  optional

        return Case(torchvision.models.get_model(name, weights=None), (picture(batch),))

    return build


def vit() -> Case:
    import transformers as hf  # noqa: PLC0415  optional

    return Case(hf.ViTModel(hf.ViTConfig()), (picture(),))


def bert() -> Case:
    import transformers as hf  # noqa: PLC0415  optional

    return Case(hf.BertModel(hf.BertConfig()), (words(16, 30000),))


def gpt2() -> Case:
    import transformers as hf  # noqa: PLC0415  optional

    return Case(hf.GPT2Model(hf.GPT2Config(use_cache=False)), (words(8, 50000),))


def llama() -> Case:
    import transformers as hf  # noqa: PLC0415  optional

    config = hf.LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=4,
        vocab_size=32000, use_cache=False,
    )  # fmt: skip
    return Case(hf.LlamaModel(config), (words(8, 32000),))


def t5() -> Case:
    import transformers as hf  # noqa: PLC0415  optional

    config = hf.T5Config(num_layers=6, d_model=512, d_ff=2048, num_heads=8, use_cache=False)
    return Case(hf.T5EncoderModel(config), (words(16, 30000),))


def whisper() -> Case:
    import transformers as hf  # noqa: PLC0415  optional
    from transformers.models.whisper.modeling_whisper import WhisperEncoder  # noqa: PLC0415

    config = hf.WhisperConfig(d_model=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048)
    return Case(WhisperEncoder(config), (torch.rand(8, 80, 3000),))


MODELS: Mapping[str, Callable[[], Case]] = {
    "resnet50": vision("resnet50"),
    "convnext_tiny": vision("convnext_tiny", 32),
    "efficientnet_b0": vision("efficientnet_b0"),
    "swin_t": vision("swin_t", 32),
    "vit": vit,
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "t5": t5,
    "whisper": whisper,
}


def optimizer_step(name: str = "Adam", tensors: int = 36) -> tuple[Any, list[torch.Tensor]]:
    """An optimizer over lists of tensors of several shapes, after a first step, and its parameters."""
    shapes = ((1024, 1024), (1024,), (4096, 256))
    made = [torch.randn(*shapes[k % 3], device="cuda").requires_grad_() for k in range(tensors)]
    for parameter in made:
        parameter.grad = torch.randn_like(parameter)
    optimizer = getattr(torch.optim, name)(made, lr=1e-3, foreach=True)
    optimizer.step()
    return optimizer, made
