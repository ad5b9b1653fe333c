"""Every method, for the tests that all of them must pass."""

from hvd_adaptive.compress import BFloat16, Compressor, Half, Identity, RandomK, TopK

INSTANCES: dict[str, list[Compressor]] = {
    "identity": [Identity()],
    "half": [Half()],
    "bfloat16": [BFloat16()],
    "topk": [TopK(1), TopK(3), TopK(1000)],
    "randomk": [RandomK(1), RandomK(3), RandomK(1000), RandomK(3, unbiased=True), RandomK(1000, unbiased=True)],
}
"""Of every method some values; the first is used where one will do."""
