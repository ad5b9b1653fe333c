"""Small language models over blocks of verses; what else stands in a block has no part in what is said of a verse."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import hvd_adaptive.torch as hva


class Recurrent(nn.Module):
    """Embedding, two LSTM layers, scores of all words."""

    def __init__(self, words: int, longest: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.output = nn.Linear(width, words)

    def forward(self, batch: hva.BLoadBatch) -> torch.Tensor:
        """Scores f32[b, T, words] of what follows each word."""
        x = self.embedding(batch.data)
        if all(block.ids.size <= 1 for block in batch.blocks):  # padded, not packed: as any script runs it, padding included
            return self.output(self.lstm(x)[0])
        return self.output(hva.run_packed(self.lstm, x, batch.blocks))


class Layer(nn.Module):
    """Attention and a feed-forward net, each added to its normalised input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.net = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        parts = self.inputs(self.before(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.joined(scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))
        return x + self.net(self.between(x))


class Attending(nn.Module):
    """A causal transformer of two layers with learned positions."""

    def __init__(self, words: int, longest: int, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(2)])
        self.output = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, words))

    def forward(self, batch: hva.BLoadBatch) -> torch.Tensor:
        """Scores f32[b, T, words] of what follows each word."""
        mask = hva.block_attention_mask(batch.segment_ids, causal=True)
        x = self.embedding(batch.data) + self.positions(batch.position_ids)
        for layer in self.layers:
            x = layer(x, mask)
        return self.output(x)


MODELS: dict[str, type[Recurrent] | type[Attending]] = {"lstm": Recurrent, "transformer": Attending}
