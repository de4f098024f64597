"""Models at the size people run them, with random weights: torchvision, transformers, diffusers, a recommender."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

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


def mixtral() -> Case:
    import transformers as hf  # noqa: PLC0415  optional

    config = hf.MixtralConfig(
        hidden_size=1024, intermediate_size=3584, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4,
        num_local_experts=8, vocab_size=32000, use_cache=False, output_router_logits=False,
    )  # fmt: skip
    return Case(hf.MixtralModel(config), (words(8, 32000),))


def mamba() -> Case:
    import transformers as hf  # noqa: PLC0415  optional

    config = hf.MambaConfig(hidden_size=768, num_hidden_layers=4, vocab_size=32000, use_cache=False)
    return Case(hf.MambaModel(config), (words(8, 32000, 64),))  # its loop over time is unrolled: 256 steps


def unet() -> Case:
    import diffusers  # noqa: PLC0415  optional

    model = diffusers.UNet2DConditionModel(
        block_out_channels=(320, 640, 1280), cross_attention_dim=768, attention_head_dim=8, sample_size=64,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    return Case(model, (torch.randn(4, 4, 64, 64), torch.tensor([10, 200, 500, 900]), torch.randn(4, 77, 768)))


def dit() -> Case:
    import diffusers  # noqa: PLC0415  optional

    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=16, attention_head_dim=72, in_channels=4, num_layers=12, sample_size=32, patch_size=2
    )
    return Case(model, (torch.randn(16, 4, 32, 32), torch.randint(0, 1000, (16,)), torch.randint(0, 1000, (16,))))


class Recommender(nn.Module):
    """Click-through by dot products of embeddings, after DLRM: tables, a bottom and a top network."""

    def __init__(self, tables: int = 26, rows: int = 100_000, width: int = 128, dense: int = 13) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(*self.layers(dense, 512, 256, width))
        self.top = nn.Sequential(*self.layers(width + (tables + 1) * tables // 2, 1024, 1024, 512), nn.Linear(512, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    @staticmethod
    def layers(*widths: int) -> list[nn.Module]:
        """Linear layers, each followed by an activation."""
        pairs = itertools.pairwise(widths)
        return [layer for before, after in pairs for layer in (nn.Linear(before, after), nn.ReLU())]

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        """The chance of a click for dense (batch, 13) and categories (batch, tables, bag)."""
        bottom = self.bottom(dense)
        rows = torch.stack([bottom, *(table(categories[:, i]) for i, table in enumerate(self.tables))], dim=1)
        products = torch.bmm(rows, rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([bottom, products], dim=1))).squeeze(1)


def dlrm() -> Case:
    return Case(Recommender(), (torch.rand(4096, 13), torch.randint(0, 100_000, (4096, 26, 4))))


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
    "mixtral": mixtral,
    "mamba": mamba,
    "unet": unet,
    "dit": dit,
    "dlrm": dlrm,
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
