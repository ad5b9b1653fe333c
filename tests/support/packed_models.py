"""Models over packed blocks, and the same over one sequence after the other, which know nothing of packing."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import hvd_adaptive.torch as hva


class Recurrent(nn.Module):
    """An LSTM of two layers, all sequences of a batch at once."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 6, num_layers=2, batch_first=True)
        self.head = nn.Linear(6, 4)

    def forward(self, batch: Any) -> torch.Tensor:
        return self.head(hva.run_packed(self.rnn, batch.data, batch.blocks))

    def alone(self, data: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(data[None])[0][0])


class Stepwise(Recurrent):
    """The same, one time after the other, its state reset at each start."""

    def forward(self, batch: Any) -> torch.Tensor:
        state, outputs = None, []
        for time in range(batch.data.shape[1]):
            state = hva.reset_states(state, batch.starts, time)
            output, state = self.rnn(batch.data[:, time : time + 1], state)
            outputs.append(output)
        return self.head(torch.cat(outputs, 1))


class Attending(nn.Module):
    """Causal attention with learned positions, behind a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.head = nn.Linear(3, 24), nn.Linear(8, 4)
        self.positions = nn.Embedding(64, 24)

    def forward(self, batch: Any) -> torch.Tensor:
        mask = hva.block_attention_mask(batch.segment_ids, causal=True)
        return self._attend(batch.data, batch.position_ids, attn_mask=mask)

    def alone(self, data: torch.Tensor) -> torch.Tensor:
        return self._attend(data[None], torch.arange(len(data))[None], is_causal=True)[0]

    def _attend(self, data: torch.Tensor, places: torch.Tensor, **mask: Any) -> torch.Tensor:
        x = self.inputs(data) + self.positions(places)
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in x.chunk(3, -1))
        return self.head(scaled_dot_product_attention(q, k, v, **mask).transpose(1, 2).flatten(2))


MODELS: dict[str, type[nn.Module]] = {"run_packed": Recurrent, "reset_states": Stepwise, "attention": Attending}


def built(name: str) -> nn.Module:
    """The same on every rank, of float64."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return MODELS[name]().double()


def packed_losses(model: nn.Module, batch: Any) -> torch.Tensor:
    """One for each element, ``[b, T]``."""
    return cross_entropy(model(batch).flatten(0, 1), batch.targets.flatten(), reduction="none").view_as(batch.targets)


def mean_over_all(model: Any, samples: Iterable[Any]) -> torch.Tensor:
    """The mean loss over all elements of all samples, one sequence after the other."""
    losses = [cross_entropy(model.alone(data), targets, reduction="none") for data, targets in samples]
    return torch.cat(losses).mean()
