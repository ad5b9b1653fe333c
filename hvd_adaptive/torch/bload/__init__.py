"""BLoad for ``torch.utils.data``."""
