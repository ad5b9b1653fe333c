"""Packing against the documented layout, bit by bit in Python's integers."""

import random

import numpy as np
import pytest
from backends import BACKENDS, backend, off_host

from hvd_adaptive.ops import packing
from hvd_adaptive.ops.torch_ops import TorchOps

LENGTHS = [*range(21), 1000]
CASES = [(dtype, bits) for dtype, most in (("uint8", 8), ("int32", 31), ("int64", 40)) for bits in range(most + 1)]


class GenericTorchOps(TorchOps):
    """Torch's own steps, which otherwise only tensors on an accelerator take."""

    pack = packing.pack
    unpack = packing.unpack


@pytest.fixture(params=[*BACKENDS, "torch, generic", "tensorflow, generic"])
def ops(request):
    """Each way of packing."""
    if request.param == "torch, generic":
        return GenericTorchOps()
    return off_host() if request.param == "tensorflow, generic" else backend(request.param)


def lengths_for(ops):
    """A few where each step takes a call of TensorFlow's, of 10 us."""
    return (0, 1, 19) if ops is off_host() else LENGTHS


def drawn(n, bits):
    """Whole numbers below 2^bits, the smallest and the largest among them."""
    rng = random.Random(f"{n} {bits}")  # noqa: S311 - no secret
    codes = [rng.getrandbits(bits) if bits else 0 for _ in range(n)]
    codes[:1], codes[-1:] = [2**bits - 1][:n], [0 if n > 1 else 2**bits - 1][:n]
    return codes


def laid_out(codes, bits):
    """Codes w, w + W, ... w + 7 W one after the other, from the lowest bit of byte w on, then of bytes w + W, w + 2 W, ..."""
    width = (len(codes) + 7) // 8
    whole = [0] * (bits * width)
    for w in range(width):
        stream = 0
        for place, code in enumerate(codes[w::width]):
            stream |= code << (place * bits)
        for byte in range(bits):
            whole[w + byte * width] = stream >> (8 * byte) & 0xFF
    return whole


def packed(ops, codes, bits, dtype):
    there = ops.from_numpy(np.array(codes, dtype))
    raw = ops.pack(there, bits)
    assert ops.dtype(raw) == "uint8"
    assert ops.to_numpy(there).tolist() == codes  # left alone
    return raw


@pytest.mark.parametrize(("dtype", "bits"), CASES)
def test_every_bit_lies_where_it_should_and_comes_back(ops, dtype, bits):
    for n in lengths_for(ops):
        codes = drawn(n, bits)
        raw = packed(ops, codes, bits, dtype)
        assert ops.to_numpy(raw).tolist() == laid_out(codes, bits)
        assert ops.size(raw) == packing.packed_size(n, bits) == bits * ((n + 7) // 8)
        back = ops.unpack(raw, bits, n, dtype)
        assert ops.dtype(back) == dtype
        assert ops.to_numpy(back).tolist() == codes


@pytest.mark.parametrize(("dtype", "bits"), [("uint8", 1), ("uint8", 2), ("int32", 9), ("int64", 25)])
@pytest.mark.parametrize("n", [8 * 1024, 20_011])
def test_long_vectors_are_laid_out_alike(ops, n, dtype, bits):
    """Which compiled loops go over in parts."""
    codes = drawn(n, bits)
    raw = packed(ops, codes, bits, dtype)
    assert ops.to_numpy(raw).tolist() == laid_out(codes, bits)
    assert ops.to_numpy(ops.unpack(raw, bits, n, dtype)).tolist() == codes


@pytest.mark.parametrize("bits", [1, 3, 8, 13, 31])
def test_each_code_alone_sets_bits_that_are_its_own(ops, bits):
    """Together they make up all bits but those of codes that are not there."""
    n = 19
    seen = np.zeros(packing.packed_size(n, bits), np.uint8)
    for place in range(n):
        raw = ops.to_numpy(packed(ops, [2**bits - 1 if i == place else 0 for i in range(n)], bits, "int64"))
        assert sum(int(byte).bit_count() for byte in raw) == bits
        assert not np.any(seen & raw)
        seen |= raw
    assert sum(int(byte).bit_count() for byte in seen) == n * bits


def test_the_dtype_may_change_on_the_way(ops):
    """Positions are packed as int64; a rank that unpacks may want int32, and codes of one byte may come as any integer."""
    codes = drawn(37, 7)
    for source in ("uint8", "int32", "int64"):
        raw = packed(ops, codes, 7, source)
        assert ops.to_numpy(raw).tolist() == laid_out(codes, 7)
        for target in ("uint8", "int32", "int64"):
            assert ops.to_numpy(ops.unpack(raw, 7, 37, target)).tolist() == codes


def test_no_bits_are_no_bytes(ops):
    """Of a unit of one element there is one position only."""
    raw = packed(ops, [0, 0, 0], 0, "int64")
    assert ops.size(raw) == 0
    assert ops.to_numpy(ops.unpack(raw, 0, 3, "int64")).tolist() == [0, 0, 0]


def test_unpacking_a_part_of_a_buffer_leaves_it_alone(ops):
    codes = drawn(11, 5)
    whole = ops.concat([ops.zeros(3, "uint8", like=ops.from_numpy(np.zeros(1))), packed(ops, codes, 5, "int64")])
    before = ops.to_numpy(whole).tolist()
    back = ops.unpack(ops.slice(whole, 3, ops.size(whole)), 5, 11, "int64")
    assert ops.to_numpy(back).tolist() == codes
    if not ops.to_numpy(back).flags.writeable:
        return  # a tensor of TensorFlow's, which nothing can be written to
    back[:] = 0
    assert ops.to_numpy(whole).tolist() == before
