"""Torch's backend where arrays are on a device: the same values as on a host, and no function waits that need not.

The device is one of the tests' own, which first has to show that it notices all waiting.
"""

import math
import threading

import numpy as np
import pytest
import torch
from backends import backend
from fake_device import DEVICE, DeviceOps, on_device, waits

from hvd_adaptive.ops import torch_device
from hvd_adaptive.ops.blocks import BLOCK
from hvd_adaptive.ops.torch_ops import TorchOps

DTYPES = ["float16", "bfloat16", "float32", "float64"]
OPS, HOST = DeviceOps(), TorchOps()


# ---- the device itself -----------------------------------------------------------------------------------------------------


def x_of(n=5):
    return on_device(np.arange(float(n)))


def assign(x, mask):
    x[mask] = 1.0


WAITING = {
    "item": lambda x: x[0].item(),
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "bool": lambda x: bool(x[0] > 1),
    "if": lambda x: 1 if x.sum() > 3 else 2,
    "math": lambda x: math.isfinite(x.sum()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu"),
    "to, not blocking": lambda x: x.to("cpu", non_blocking=True),
    "numpy": lambda x: x.numpy(force=True),
    "nonzero": lambda x: x.nonzero(),
    "argwhere": torch.argwhere,
    "where": lambda x: torch.where(x > 1),
    "a mask": lambda x: x[x > 1],
    "a mask to write": lambda x: assign(x, x > 1),
    "masked_select": lambda x: x.masked_select(x > 1),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "allclose": lambda x: torch.allclose(x, x),
    "any": lambda x: bool((x > 1).any()),
    "repeat_interleave": lambda x: x.repeat_interleave(on_device(np.array([1, 2, 0, 1, 1]))),
    "bincount": lambda x: x.long().bincount(),
    "tensor": lambda x: torch.tensor([1.0, 2.0], device=x.device),
    "as_tensor": lambda x: torch.as_tensor(np.ones(3), device=x.device),
    "from the host": lambda x: torch.ones(3).to(x.device),
    "from the host, not blocking": lambda x: torch.ones(3).to(x.device, non_blocking=True),
    "from locked pages, blocking": lambda x: torch.ones(3).pin_memory().to(x.device),
    "copy from the host": lambda x: x.copy_(torch.ones(5, dtype=torch.float64)),
    "copy to the host": lambda x: torch.ones(5, dtype=torch.float64).copy_(x),
}
QUIET = {
    "from locked pages": lambda x: torch.ones(3).pin_memory().to(x.device, non_blocking=True),
    "new": lambda x: [make(3, device=x.device) for make in (torch.zeros, torch.ones, torch.empty, torch.arange)],
    "full": lambda x: torch.full((2,), 3.0, device=x.device),
    "full_like": lambda x: torch.full_like(x, 3.0),
    "arithmetic": lambda x: -x * 2 + x[0] / 3 - x.sum(),
    "where of three": lambda x: torch.where(x > 1, x, torch.zeros_like(x)),
    "selection": lambda x: (torch.topk(x, 2), torch.sort(x), x.index_select(0, torch.arange(2, device=x.device))),
    "in place": lambda x: x[1:3].add_(1).mul_(2),
    "shape": lambda x: (x.numel(), x.dtype, x.device, x.nbytes, len(x)),
}


@pytest.mark.parametrize("call", WAITING.values(), ids=WAITING)
def test_the_device_notices_who_waits(call):
    with waits() as heard:
        call(x_of())
    assert heard


@pytest.mark.parametrize("call", QUIET.values(), ids=QUIET)
def test_the_device_lets_others_go_on(call):
    with waits() as heard:
        call(x_of())
    assert heard == []


def test_the_device_is_no_host():
    assert x_of().device == DEVICE != torch.device("cpu")
    with pytest.raises(TypeError, match="can't convert"):
        x_of().numpy()
    with pytest.raises(TypeError, match="can't convert"):
        np.asarray(x_of())
    with pytest.raises(RuntimeError, match="same device"):
        x_of() + torch.ones(5)
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([x_of(), torch.ones(5, dtype=torch.float64)])


def test_each_thread_hears_its_own_waiting():
    with waits() as heard:
        other = threading.Thread(target=lambda: x_of().tolist())
        other.start()
        other.join()
    assert heard == []
    with waits() as outer, waits() as inner:
        x_of().tolist()
    assert outer == inner == ["aten::_to_copy"]


# ---- what the backend computes on it ---------------------------------------------------------------------------------------


def vector(dtype, n=257):
    """f[n] of 64ths, whose sums are exact; with ties, zeros and both signs."""
    return torch.tensor(np.random.default_rng([3, n]).integers(-200, 201, n) / 64).to(getattr(torch, dtype))


def integers(ops, x):
    return ops.cast(x * 64, "int64")


def some(ops, x):
    """Distinct positions, without a look at ``x``."""
    return ops.arange(ops.size(x) // 3, x) * 3


def magnitudes(ops, x, positions):
    return ops.cast(ops.take(abs(x), positions), "float64")


CALLS = {
    "zeros": lambda ops, x: ops.zeros(5, "int32", like=x),
    "arange": lambda ops, x: ops.arange(7, like=x),
    "flatten": lambda ops, x: ops.flatten(ops.transpose(ops.matrix(x, 16, 17))),
    "cast": lambda ops, x: ops.cast(x, "float64"),
    "where": lambda ops, x: ops.where(x > 0, x, ops.full_like(x, 3.0)),
    "any": lambda ops, x: ops.any(x > 3),
    "any, none": lambda ops, x: ops.any(x > 50),
    "all_finite": lambda ops, x: ops.all_finite(x),
    "all_finite, not": lambda ops, x: ops.all_finite(ops.set_slice(x, 7, ops.full_like(ops.slice(x, 0, 1), -math.inf))),
    "starts_with_nan": lambda ops, x: ops.starts_with_nan(x),
    "starts_with_nan, so": lambda ops, x: ops.starts_with_nan(ops.full_like(x, math.nan)),
    "set_slice": lambda ops, x: ops.set_slice(x, 3, ops.slice(ops.full_like(x, 9.0), 0, 2)),
    "add_slice": lambda ops, x: ops.add_slice(x, 1, ops.slice(ops.full_like(x, 9.0), 0, 2)),
    "add_slice, weighted": lambda ops, x: ops.add_slice(x, 0, ops.slice(ops.full_like(x, 9.0), 0, 2), -0.5),
    "add_finite": lambda ops, x: ops.add_finite(x, 2, ops.slice(ops.full_like(x, 9.0), 0, 3))[0],
    "add_finite, not": lambda ops, x: ops.add_finite(x, 2, ops.slice(ops.full_like(x, math.inf), 0, 3))[0],
    "scale": lambda ops, x: ops.scale(x, 0.25),
    "shift_left": lambda ops, x: ops.shift_left(integers(ops, x), 35),
    "shift_right": lambda ops, x: ops.shift_right(integers(ops, x), 3),
    "take": lambda ops, x: ops.take(x, some(ops, x)),
    "clear": lambda ops, x: ops.clear(x, some(ops, x)),
    "clear, by int32": lambda ops, x: ops.clear(x, ops.cast(some(ops, x), "int32")),
    "scatter_add": lambda ops, x: ops.scatter_add(x, some(ops, x), ops.take(x, some(ops, x))),
    "top_positions": lambda ops, x: torch.sort(magnitudes(ops, x, ops.top_positions(x, 30))).values,
    "top_positions, all": lambda ops, x: ops.top_positions(x, 257),
    "largest_first": lambda ops, x: ops.largest_first(x),
    "smallest": lambda ops, x: ops.smallest(x),
    "count": lambda ops, x: ops.count(x > 0),
    "sign": lambda ops, x: ops.sign(x),
    "floor": lambda ops, x: ops.floor(x),
    "at_most": lambda ops, x: ops.at_most(x, 0.5),
    "row_max": lambda ops, x: ops.row_max(x, 7),
    "row_sum": lambda ops, x: ops.row_sum(x, 7),
    "row_norm": lambda ops, x: ops.row_norm(x, 7),
    "row_norm, of zeros": lambda ops, x: ops.row_norm(ops.full_like(x, 0.0), 7),
    "repeat": lambda ops, x: ops.repeat(x, 3, 3 * ops.size(x) - 2),
    "matmul": lambda ops, x: ops.matmul(ops.matrix(x, 16, 17), ops.transpose(ops.matrix(x, 16, 17))),
    "orthonormal": lambda ops, x: ops.orthonormal(ops.matrix(ops.cast(x, "float64"), 66, 4)),
    "uniform": lambda ops, x: ops.uniform(BLOCK + 9, [(1, 2), (3, 2**32 - 1)], x),
    "sample": lambda ops, x: ops.sample(200, 257, [(1, 2), (3, 4)], 9, x),
    "levels_of": lambda ops, x: ops.levels_of(
        ops.cast(x, "float64"), ops.full_like(ops.cast(x, "float64"), 4.0), 1, 0, 7, ops.uniform(257, [(1, 2)], x)
    ),
    "pack": lambda ops, x: ops.pack(ops.cast(abs(integers(ops, x)), "int32"), 9),
    "unpack": lambda ops, x: ops.unpack(ops.pack(ops.cast(abs(integers(ops, x)), "int32"), 9), 9, 257, "int64"),
    "to_bfloat16_bits": lambda ops, x: ops.to_bfloat16_bits(x),
    "from_bfloat16_bits": lambda ops, x: ops.from_bfloat16_bits(ops.to_bfloat16_bits(x), "float64"),
    "from_bytes": lambda ops, x: ops.from_bytes(ops.to_bytes(x), ops.dtype(x)),
    "concat": lambda ops, x: ops.concat([x, ops.slice(x, 0, 1)]),
    "from_numpy": lambda ops, x: ops.from_numpy(np.arange(3), x),
}
"""All that a method or an exchange may call without waiting."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_same_as_on_a_host_without_waiting(call, dtype):
    x = vector(dtype)
    expected = call(HOST, x.clone())
    given = on_device(x)
    with waits() as heard:
        found = call(OPS, given)
    assert heard == []
    assert found.device == DEVICE
    if isinstance(expected, torch.Tensor):
        close = {"rtol": 1e-3, "atol": 1e-3} if expected.dtype == torch.bfloat16 else {"rtol": 1e-6, "atol": 1e-6}
        torch.testing.assert_close(found.cpu(), expected, **close)  # norms and products are rounded in another order
    else:
        assert found.tolist() == [expected]  # a number that nobody has read


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_element_anywhere_is_found(dtype, bad):
    for place in (0, 100, 256):
        x = vector(dtype)
        x[place] = bad
        assert OPS.all_finite(on_device(x)).tolist() == [False]
        assert OPS.starts_with_nan(on_device(x)).tolist() == [place == 0 and math.isnan(bad)]
        residual, finite = OPS.add_finite(on_device(vector(dtype)), 0, on_device(x))
        assert finite.tolist() == [False]
        assert torch.equal(residual.cpu(), vector(dtype))


def test_sums_beyond_the_dtype_are_not_added():
    x = on_device(np.full(3, 3e38, np.float32))
    residual, finite = OPS.add_finite(x, 1, x[:1])
    assert finite.tolist() == [False]
    assert residual.tolist() == pytest.approx([3e38] * 3)


def test_nothing_is_finite_and_starts_with_no_nan():
    nothing = on_device(np.zeros(0, np.float32))
    assert OPS.all_finite(nothing).tolist() == [True]
    assert OPS.starts_with_nan(nothing).tolist() == [False]
    assert OPS.add_finite(nothing, 0, nothing)[1].tolist() == [True]


def test_norms_of_the_largest_doubles_and_of_the_smallest_are_right():
    for value in (1e300, 5e-324):
        assert torch_device.row_norm(on_device(np.full((1, 4), value))).tolist() == [2 * value]


def test_what_must_wait_waits_once():
    x = on_device(vector("float32"))
    for call in (lambda: OPS.nonzero(x > 0), lambda: OPS.to_numpy(x)):
        with waits() as heard:
            call()
        assert len(heard) == 1


def test_the_backend_of_tests_is_torchs_but_for_what_tests_hand_over():
    assert backend("device").from_numpy(np.ones(2)).device == DEVICE
    assert {name for name in vars(DeviceOps) if not name.startswith("__")} == {"from_numpy"}
