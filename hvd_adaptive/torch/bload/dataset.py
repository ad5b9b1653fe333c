"""The samples that a block is made of."""

from typing import Any

from torch.utils.data import Dataset

from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.bload.packed import Packed
from hvd_adaptive.bload.samples import Indexed, Samples
from hvd_adaptive.errors import ConfigError


class BLoadDataset(Dataset[Packed]):
    """Samples by the block instead of one by one.

    Args:
        dataset: samples by index; each a tensor or array, or a tuple, list or dict of them, all with time first and as long.
        lengths: those the sampler was given; needed where it splits or truncates long sequences, for a block does not tell how
            long all of a sequence is.

    Raises:
        ConfigError: if ``lengths`` are not legal.
    """

    def __init__(self, dataset: Indexed[Any], lengths: Any = None) -> None:
        self.dataset = dataset
        self._samples = Samples(dataset, lengths)

    def __len__(self) -> int:
        """Number of sequences, if the data set knows it."""
        return len(self.dataset)  # type: ignore[arg-type]  # not all of them do

    def __getitem__(self, block: Block) -> Packed:
        """
        Raises:
            ConfigError: if a sample is not as long as recorded, or its parts are not as long as each other.
        """
        if not isinstance(block, Block):
            raise ConfigError(
                f"BLoadDataset is read by the block, got {block!r}; use it with DataLoader(..., batch_sampler=BLoadSampler(...))"
            )
        return self._samples.read(block)
