"""A small program as users write it: a model, torch.compile, a few steps."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, target = torch.randn(64, 16), torch.randint(0, 4, (64,))
    for step in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(compiled(x), target)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
