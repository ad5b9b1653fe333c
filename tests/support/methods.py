"""Every method, for the tests that all of them must pass."""

from hvd_adaptive.compress import (
    DGC,
    QSGD,
    AdaptiveThreshold,
    BFloat16,
    Compressor,
    EFSign,
    Half,
    Identity,
    NaturalCompression,
    OneBit,
    PowerSGD,
    RandomK,
    RedSync,
    SignSGD,
    TernGrad,
    Threshold,
    TopK,
)

INSTANCES: dict[str, list[Compressor]] = {
    "identity": [Identity()],
    "half": [Half()],
    "bfloat16": [BFloat16()],
    "topk": [TopK(1), TopK(3), TopK(1000)],
    "randomk": [RandomK(1), RandomK(3), RandomK(1000), RandomK(3, unbiased=True), RandomK(1000, unbiased=True)],
    "threshold": [Threshold(1.0), Threshold(0), Threshold(1e30)],
    "adaptive-threshold": [AdaptiveThreshold()],
    "terngrad": [TernGrad(), TernGrad(clip=2.5)],
    "qsgd": [QSGD(7), QSGD(1), QSGD(127, norm="max"), QSGD(1000, norm="max", bucket=8), QSGD(3, bucket=16)],
    "signsgd": [SignSGD(), SignSGD(scaled=True)],
    "natural": [NaturalCompression()],
    "dgc": [DGC(3), DGC(1), DGC(1000)],
    "redsync": [RedSync(3), RedSync(1), RedSync(1000)],
    "powersgd": [PowerSGD(1), PowerSGD(4)],
    "onebit": [OneBit()],
    "efsign": [EFSign(), EFSign(bucket=8)],
}
"""Of every method some values; the first is used where one will do."""
