"""Every parameter in exactly one place, in order, and buckets filled by the rule, checked by brute force."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_adaptive import ConfigError
from hvd_adaptive.granularity import Parameter, Slot, Unit, bucketed, entire_model, layer_wise

WIDTHS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def parameter(name="w", shape=(3, 4), dtype="float32"):
    return Parameter(name, shape, dtype)


models = st.lists(
    st.tuples(st.lists(st.integers(0, 6), max_size=3).map(tuple), st.sampled_from(sorted(WIDTHS))), min_size=1, max_size=12
).map(lambda given: [Parameter(f"layer{i}.weight", shape, dtype) for i, (shape, dtype) in enumerate(given)])


@pytest.mark.parametrize(("shape", "size"), [((), 1), ((5,), 5), ((2, 3, 4), 24), ((3, 0), 0)])
@pytest.mark.parametrize("dtype", sorted(WIDTHS))
def test_size_and_bytes_of_a_parameter(shape, size, dtype):
    assert parameter(shape=shape, dtype=dtype).size == size
    assert parameter(shape=shape, dtype=dtype).nbytes == size * WIDTHS[dtype]


def parts(units):
    """The parameters in the order in which the units hold them, after checking that the slots of each follow one another."""
    for unit in units:
        ends = [0, *(slot.stop for slot in unit.slots)]
        assert [slot.start for slot in unit.slots] == ends[:-1]
        assert [slot.stop - slot.start for slot in unit.slots] == [slot.parameter.size for slot in unit.slots]
        assert unit.size == ends[-1]
        assert unit.nbytes == sum(slot.parameter.size * WIDTHS[slot.parameter.dtype] for slot in unit.slots)
    assert len({unit.name for unit in units}) == len(units)
    return [slot.parameter for unit in units for slot in unit.slots]


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3, 4), (3, 0)])
def test_a_unit_of_one_parameter_has_its_shape_and_one_of_several_is_a_vector(shape):
    lone, other = parameter("a", shape), parameter("b", (7,))
    assert [unit.shape for unit in layer_wise([lone, other])] == [shape, (7,)]
    assert [unit.shape for unit in entire_model([lone])] == [shape]
    assert [unit.shape for unit in entire_model([lone, other])] == [(lone.size + 7,)]


@given(model=models)
def test_layer_wise_is_one_unit_each(model):
    units = layer_wise(model)
    assert parts(units) == model
    assert [unit.name for unit in units] == [p.name for p in model]


@given(model=models)
def test_entire_model_is_one_unit_of_all(model):
    (unit,) = entire_model(model)
    assert parts([unit]) == model
    assert unit.size == sum(p.size for p in model)


@given(model=models, room=st.integers(1, 400))
def test_buckets_hold_consecutive_parameters_and_no_more_than_they_may(model, room):
    units = bucketed(model, room)
    assert parts(units[::-1]) == model
    assert all(unit.slots for unit in units)
    assert all(unit.nbytes <= room or sum(slot.parameter.nbytes > 0 for slot in unit.slots) == 1 for unit in units)


@given(model=models, room=st.integers(1, 400))
def test_buckets_are_filled_from_the_back_before_the_next_is_begun(model, room):
    """The parameter that opens a bucket would not have fitted into the one before."""
    units = bucketed(model, room)
    for full, following in itertools.pairwise(units):
        assert full.nbytes + following.slots[-1].parameter.nbytes > room


def test_buckets_by_hand():
    """40, 400, 40, 40, 40 bytes into buckets of 100: from the back 40+40, then 40 alone, then the giant, then the first."""
    model = [parameter(f"p{i}", (n,)) for i, n in enumerate([10, 100, 10, 10, 10])]
    units = bucketed(model, 100)
    assert [(u.name, [s.parameter.name for s in u.slots]) for u in units] == [
        ("bucket0", ["p3", "p4"]),
        ("bucket1", ["p2"]),
        ("bucket2", ["p1"]),
        ("bucket3", ["p0"]),
    ]
    assert units[0].slots[1] == Slot(model[4], 10, 20)


def test_a_bucket_may_be_filled_to_the_last_byte():
    model = [parameter(f"p{i}", (25,)) for i in range(4)]
    assert [len(unit.slots) for unit in bucketed(model, 200)] == [2, 2]
    assert [len(unit.slots) for unit in bucketed(model, 199)] == [1, 1, 1, 1]
    assert [len(unit.slots) for unit in bucketed(model, 10**9)] == [4]


@pytest.mark.parametrize("bucket_bytes", [0, -1, 1.5, "25", None, True])
def test_refuses_bad_bucket_sizes(bucket_bytes):
    with pytest.raises(ConfigError) as raised:
        bucketed([parameter()], bucket_bytes)
    assert str(raised.value) == f"bucket_bytes must be a positive number of bytes, got {bucket_bytes!r}"


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["float16"], "float32"),
        (["bfloat16"], "float32"),
        (["float32"], "float32"),
        (["float16", "float32"], "float32"),
        (["float32", "float64", "float16"], "float64"),
    ],
)
def test_a_unit_is_compressed_in_the_widest_dtype_and_float32_at_least(dtypes, expected):
    (unit,) = entire_model([parameter(f"p{i}", (1,), dtype) for i, dtype in enumerate(dtypes)])
    assert unit.dtype == expected


def test_a_units_number_is_the_crc32_of_its_name():
    """0xCBF43926 is the check value in every table of CRCs."""
    assert Unit("123456789", ()).number == 0xCBF43926
    assert Unit("model", ()).number != Unit("bucket0", ()).number


def test_scopes_of_nothing():
    assert layer_wise([]) == entire_model([]) == bucketed([], 10) == ()
