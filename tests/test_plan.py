"""What is refused and how it is said; and how each parameter is treated, spelled out by hand for a small model."""

import re
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pytest

from hvd_adaptive import BFloat16, ConfigError, Fixed, Half, Identity, Network, NoFeedback, RandomK, Residual, TopK
from hvd_adaptive.compress import DGC, QSGD, EFSign, NaturalCompression, OneBit, PowerSGD, RedSync, SignSGD, TernGrad, Threshold
from hvd_adaptive.exchange import Gather, Reduce, SharedSupport, TwoSided
from hvd_adaptive.feedback import MomentumCorrection
from hvd_adaptive.granularity import Parameter, bucketed, entire_model, layer_wise
from hvd_adaptive.plan import Options, build

MODEL = [
    Parameter("conv.weight", (8, 3, 3, 3), "float32"),
    Parameter("conv.bias", (8,), "float32"),
    Parameter("norm.weight", (8,), "float32"),
    Parameter("fc.weight", (10, 8), "float16"),
    Parameter("fc.bias", (10,), "float16"),
]


def options(**changes):
    defaults = {"controller": None, "feedback": None, "exchange": "auto", "dense_below": 0, "exclude": (), "seed": 0}
    return Options(**{"compressor": TopK(10)} | defaults | changes)


def units(plans):
    """Names of the parameters of each unit, compressed ones and dense ones."""
    named = [([slot.parameter.name for slot in plan.unit.slots], plan.dense) for plan in plans]
    return [names for names, dense in named if not dense], [names for names, dense in named if dense]


# ---- options ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressor", [TopK, "topk", None, 10, object(), b"topk"])
def test_the_compressor_must_be_an_instance(compressor):
    with pytest.raises(ConfigError) as raised:
        options(compressor=compressor)
    assert str(raised.value) == f"compressor must be an instance such as TopK(factor=100), got {compressor!r}"


@pytest.mark.parametrize("controller", [Fixed, "fixed", 10, object(), (Fixed(10), Fixed(20))])
def test_the_controller_must_be_an_instance(controller):
    with pytest.raises(ConfigError) as raised:
        options(controller=controller)
    assert str(raised.value) == (
        f"controller must be one instance such as GraVAC(max_factor=1000) or Fixed(100), got {controller!r}"
    )


@pytest.mark.parametrize("compressor", [Identity(), Half(), BFloat16()])
def test_a_controller_needs_a_factor_to_change(compressor):
    with pytest.raises(ConfigError, match="has no factor for a controller to change") as raised:
        options(compressor=compressor, controller=Fixed(10))
    assert repr(compressor) in str(raised.value)
    options(compressor=RandomK(2), controller=Fixed(10))


@pytest.mark.parametrize("feedback", [Residual, NoFeedback, "residual", 1, 0, object()])
def test_feedback_must_be_an_instance_or_a_truth_value(feedback):
    with pytest.raises(ConfigError) as raised:
        options(feedback=feedback)
    assert str(raised.value) == f"feedback must be None, True, False or an instance such as Residual(), got {feedback!r}"


@pytest.mark.parametrize("exchange", ["reduce", "allreduce", None, Reduce(), Reduce, 3])
def test_the_exchange_must_be_legal_for_the_compressor(exchange):
    with pytest.raises(ConfigError, match=f"{re.escape(repr(exchange))}.*legal are auto, "):
        options(exchange=exchange)


@pytest.mark.parametrize("value", [-1, 1.5, "10", None, True])
def test_dense_below_must_be_a_count(value):
    with pytest.raises(ConfigError) as raised:
        options(dense_below=value)
    assert str(raised.value) == f"dense_below must be an integer >= 0, got {value!r}"


@pytest.mark.parametrize("value", [1.5, "10", None, False])
def test_the_seed_must_be_an_integer(value):
    with pytest.raises(ConfigError) as raised:
        options(seed=value)
    assert str(raised.value) == f"seed must be an integer, got {value!r}"


@pytest.mark.parametrize("seed", [0, -5, 2**70])
def test_any_integer_is_a_seed(seed):
    assert options(seed=seed).seed == seed


@pytest.mark.parametrize("exclude", [(1,), ("*.bias", None)])
def test_exclude_must_hold_patterns(exclude):
    with pytest.raises(ConfigError, match=r"exclude must hold name patterns such as '\*\.bias'") as raised:
        options(exclude=exclude)
    assert repr(exclude) in str(raised.value)


def test_excluded_names():
    names = [p.name for p in MODEL]
    assert options().excluded(names) == set()
    assert options(exclude=("*.bias",)).excluded(names) == {"conv.bias", "fc.bias"}
    assert options(exclude=("norm.*", "fc.weight")).excluded(names) == {"norm.weight", "fc.weight"}
    assert options(exclude=("*",)).excluded(names) == set(names)


def test_a_pattern_that_matches_nothing_is_refused():
    with pytest.raises(ConfigError) as raised:
        options(exclude=("*.bias", "*.BIAS")).excluded([p.name for p in MODEL])
    message = "exclude pattern '*.BIAS' matches none of the parameters conv.weight, conv.bias, norm.weight, fc.weight, fc.bias"
    assert str(raised.value) == message


def test_descriptions_compare_equal_where_ranks_behave_alike():
    assert options().described() == options(compressor=TopK(factor=10.0)).described()
    assert options().described() != options(seed=1).described()
    assert options().described() != options(compressor=TopK(11)).described()
    assert options().described() != options(feedback=False).described()
    assert set(options().described()) == {
        "compressor", "controller", "feedback", "exchange", "dense_below", "exclude", "seed"
    }  # fmt: skip


def test_descriptions_hold_no_addresses():
    """They differ between processes that do the same."""

    class Plain:
        absorb = None

    first, second = options(feedback=Plain()), options(feedback=Plain())
    assert repr(first) != repr(second)
    assert first.described() == second.described()


# ---- plans -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (layer_wise, [["conv.weight"], ["conv.bias"], ["norm.weight"], ["fc.weight"], ["fc.bias"]]),
        (entire_model, [["conv.weight", "conv.bias", "norm.weight", "fc.weight", "fc.bias"]]),
        (partial(bucketed, bucket_bytes=212), [["norm.weight", "fc.weight", "fc.bias"], ["conv.bias"], ["conv.weight"]]),
    ],
    ids=["layer-wise", "entire-model", "bucketed"],
)
def test_every_parameter_is_compressed_unless_asked_otherwise(scope, expected):
    assert units(build(MODEL, scope, options())) == (expected, [])


def test_small_parameters_go_dense():
    compressed, dense = units(build(MODEL, entire_model, options(dense_below=10)))
    assert compressed == [["conv.weight", "fc.weight", "fc.bias"]]  # 10 elements are not fewer than 10
    assert dense == [["conv.bias"], ["norm.weight"]]


def test_excluded_parameters_go_dense_each_on_its_own():
    plans = build(MODEL, entire_model, options(exclude=("*.bias",), dense_below=9, compressor=TopK(10)))
    assert units(plans) == ([["conv.weight", "fc.weight"]], [["conv.bias"], ["norm.weight"], ["fc.bias"]])
    for plan in plans[1:]:
        assert (plan.compressor, plan.exchange, plan.feedback) == (Identity(), Reduce(), NoFeedback())


def test_all_may_be_dense():
    plans = build(MODEL, entire_model, options(dense_below=10**6))
    assert units(plans) == ([], [[p.name] for p in MODEL])


def test_a_parameter_without_elements_has_nothing_to_select():
    model = [*MODEL, Parameter("empty", (0, 3), "float32")]
    assert units(build(model, layer_wise, options()))[1] == [["empty"]]


def test_a_pattern_must_match():
    with pytest.raises(ConfigError, match="matches none"):
        build(MODEL, layer_wise, options(exclude=("nothing",)))


@pytest.mark.parametrize(
    ("compressor", "asked", "expected"),
    [
        (TopK(10), None, Residual()),
        (RandomK(10), None, Residual()),
        (RandomK(10, unbiased=True), None, NoFeedback()),
        (RandomK(1.5, unbiased=True), True, Residual()),
        (TopK(10), True, Residual()),
        (TopK(10), Residual(0.5), Residual(0.5)),
        (Identity(), None, NoFeedback()),
        (Half(), None, NoFeedback()),
        (BFloat16(), None, NoFeedback()),
        (TopK(10), False, NoFeedback()),
        (Half(), True, Residual()),
        (Half(), Residual(), Residual()),
        (TopK(10), NoFeedback(), NoFeedback()),
        (DGC(10), None, MomentumCorrection()),
        (DGC(10, momentum=0.5, nesterov=True, clip=2, masking=False), None, MomentumCorrection(0.5, True, 2.0, False)),
        (DGC(10, momentum=0.5), True, MomentumCorrection(0.5)),
        (DGC(10), Residual(), Residual()),
        (DGC(10), False, NoFeedback()),
        (TopK(10), MomentumCorrection(0.8), MomentumCorrection(0.8)),
        (SignSGD(), None, NoFeedback()),
        (SignSGD(), False, NoFeedback()),
        (SignSGD(scaled=True), None, Residual()),
        (QSGD(127, norm="max"), True, Residual()),
        (NaturalCompression(), True, Residual()),
        (TernGrad(), Residual(), Residual()),
        (PowerSGD(2), None, Residual()),
        (OneBit(), None, Residual()),
        (EFSign(), None, Residual()),
        (Threshold(0.5), None, Residual()),
        (QSGD(7), None, NoFeedback()),
    ],
)
def test_feedback_is_on_exactly_where_the_method_is_biased_or_it_is_asked_for(compressor, asked, expected):
    for plan in build(MODEL, layer_wise, options(compressor=compressor, feedback=asked)):
        assert plan.feedback == expected


@pytest.mark.parametrize(
    ("compressor", "omega"),
    [(TernGrad(), "6.85"), (TernGrad(clip=2.5), "6.85"), (QSGD(1), "14.7"), (RandomK(2, unbiased=True), "1")],
    ids=repr,
)
def test_a_residual_that_would_grow_without_end_is_refused_with_the_way_out(compressor, omega):
    """216 elements: (sqrt(216) - 1) / 2, sqrt(216) / 1, 2 - 1."""
    with pytest.raises(ConfigError) as raised:
        build(MODEL[:1], layer_wise, options(compressor=compressor, feedback=True))
    told = f"the error of {compressor!r} may exceed the gradient of a unit of 216 elements (omega is {omega},"
    assert told in str(raised.value)
    assert build(MODEL[:1], layer_wise, options(compressor=compressor, feedback=Residual()))[0].feedback == Residual()


def test_settings_that_mean_the_same_are_described_alike():
    for one, other in (
        ({"exchange": "auto"}, {"exchange": "gather"}),
        ({"exchange": "two-sided"}, {"exchange": TwoSided()}),
        ({"feedback": None}, {"feedback": True}),
    ):
        assert options(**one).described() == options(**other).described()
    assert options(exchange="gather").described() != options(exchange="two-sided").described()


@pytest.mark.parametrize("scope", [layer_wise, entire_model])
def test_factor_1_is_stock_horovods_way_unless_more_is_asked_for(scope):
    """Nothing is dropped, so nothing need be selected, sent otherwise, or kept back."""

    def untouched(compressor, **changes):
        return {plan.untouched for plan in build(MODEL[:2], scope, options(compressor=compressor, **changes))}

    for compressor in (TopK(1), RandomK(1), RandomK(1, unbiased=True), RedSync(1)):
        assert untouched(compressor) == {True}
        for asked in ({"exchange": compressor.exchanges[0]}, {"feedback": True}, {"controller": Fixed(1)}):
            if not (asked.get("feedback") and not compressor.biased):
                assert untouched(compressor, **asked) == {False}
    for compressor in (TopK(1.01), Half(), QSGD(7), DGC(1)):  # which corrects the momentum
        assert untouched(compressor) == {False}


@pytest.mark.parametrize("network", ["slow", 125e6, Network, (0, 1)])
def test_a_network_is_one(network):
    with pytest.raises(ConfigError, match=rf"^network must be None or such as Network\(.*got {re.escape(repr(network))}"):
        options(network=network)


def test_a_network_alone_makes_no_difference_between_ranks():
    """It counts where it decides, and is then compared."""
    assert options(network=Network(0, 1)).described() == options().described()


def test_units_get_what_suits_their_size():
    """A large unit among many ranks on a slow link goes by shared support, a small one is gathered."""
    parameters = [Parameter("large", (2_000_000,), "float32"), Parameter("small", (10,), "float32")]
    asked = options(compressor=TopK(10), network=Network(1e-6, 1e6))
    assert [plan.exchange for plan in build(parameters, layer_wise, asked, 64)] == [SharedSupport(), Gather()]
    assert [plan.exchange for plan in build(parameters, layer_wise, options(), 64)] == [Gather()] * 2  # not measured yet
    assert [plan.exchange for plan in build(parameters, layer_wise, asked, 2)] == [Gather()] * 2


def test_a_class_in_place_of_an_exchange_is_told_what_is_meant():
    with pytest.raises(ConfigError, match=r"or an instance such as TwoSided\(\)$"):
        options(exchange=TwoSided)


@pytest.mark.parametrize(
    ("compressor", "asked", "expected"),
    [
        (TopK(10), "auto", Gather()),
        (BFloat16(), "auto", Gather()),
        (RandomK(10), "auto", Reduce()),
        (RandomK(10), "gather", Gather()),
        (Half(), "gather", Gather()),
        (Identity(), "auto", Reduce()),
        (RandomK(10), Gather(), Gather()),
        (Half(), Reduce(), Reduce()),
    ],
)
def test_the_exchange_is_the_one_asked_for(compressor, asked, expected):
    for plan in build(MODEL, layer_wise, options(compressor=compressor, exchange=asked)):
        assert plan.exchange == expected
        assert plan.compressor == compressor


@dataclass(frozen=True)
class Own:
    """A feedback a method brings along."""

    remembers: ClassVar[tuple[str, ...]] = ("momentum", "residual")
    absorb = complete = keep = undo = None


class Demanding(Gather):
    """An exchange that serves no fewer than 3 ranks, and remembers by shape and number of ranks."""

    def check(self, compressor, size):
        if size < 3:
            raise ConfigError(f"{compressor!r} among {size}")

    def remembers(self, compressor, shape, size):
        return {"factor": shape[0] * 100 + size}


def test_a_method_may_bring_its_own_feedback():
    """It is used where feedback is left open or asked for; not where it is refused or another one is given."""

    class Bringing(TopK):
        feedback: ClassVar = Own()

    for asked, expected in ((None, Own()), (True, Own()), (False, NoFeedback()), (Residual(), Residual())):
        (plan,) = build(MODEL, entire_model, options(compressor=Bringing(2), feedback=asked))
        assert plan.feedback == expected


def test_an_exchange_is_asked_whether_it_serves_so_many_ranks():
    asked = options(exchange=Demanding())
    for ranks in (1, 2):
        with pytest.raises(ConfigError) as raised:
            build(MODEL, layer_wise, asked, ranks)
        assert str(raised.value) == f"{TopK(10)!r} among {ranks}"
    assert build(MODEL, layer_wise, asked, 3)[0].exchange is asked.exchange


def test_what_a_checkpoint_must_hold_of_a_unit():
    """What feedback and exchange remember, the one as long as the unit, the other as it says."""

    def remembered(scope, **changes):
        return build(MODEL[:2], scope, options(**changes), 3)[0].remembers(3)

    assert remembered(layer_wise, compressor=Identity()) == remembered(layer_wise, feedback=False) == {}
    assert remembered(layer_wise) == {"residual": 216}
    assert remembered(entire_model) == {"residual": 224}
    assert remembered(layer_wise, exchange=Demanding()) == {"residual": 216, "factor": 803}
    assert remembered(entire_model, exchange=Demanding(), feedback=False) == {"factor": 22403}
    assert remembered(entire_model, feedback=Own()) == {"momentum": 224, "residual": 224}


@pytest.mark.parametrize("feedback", [True, Residual(), Residual(0.5), MomentumCorrection()], ids=repr)
@pytest.mark.parametrize("exchange", ["auto", "reduce", "gather", "two-sided", TwoSided(QSGD(7))], ids=str)
def test_votes_have_no_magnitude_that_could_be_kept_back(feedback, exchange):
    with pytest.raises(ConfigError, match=r"sends votes without a magnitude.*such as SignSGD\(scaled=True\)$"):
        options(compressor=SignSGD(), feedback=feedback, exchange=exchange)
    options(compressor=SignSGD(scaled=True), feedback=feedback, exchange=exchange)
    for without in (None, False, NoFeedback()):
        options(compressor=SignSGD(), feedback=without, exchange=exchange)


def test_masters_and_factors_are_remembered_too():
    """216 elements as 8 by 27, or with the 8 of the bias as 14 by 16; among 3 ranks 72 or 75 elements each."""

    def remembered(scope, **changes):
        return [plan.remembers(3) for plan in build(MODEL[:2], scope, options(**changes), 3)]

    power = {"compressor": PowerSGD(2), "exchange": "reduce"}
    assert remembered(layer_wise, **power) == [{"residual": 216, "q": 54}, {"residual": 8}]
    assert remembered(layer_wise, **power, feedback=False) == [{"q": 54}, {}]
    assert remembered(entire_model, **power) == [{"residual": 224, "q": 32}]
    chunk = remembered(entire_model, compressor=PowerSGD(2), exchange="two-sided")
    assert chunk == [{"residual": 224, "master residual": 75}]
    assert remembered(entire_model, exchange="two-sided") == [{"residual": 224, "master residual": 75}]
    assert remembered(layer_wise, exchange="two-sided") == [
        {"residual": 216, "master residual": 72},
        {"residual": 8, "master residual": 3},
    ]
    assert remembered(entire_model, exchange=TwoSided(QSGD(7))) == [{"residual": 224}]
    assert remembered(entire_model, exchange=TwoSided(feedback=False)) == [{"residual": 224}]
    assert remembered(entire_model, compressor=QSGD(7), exchange=TwoSided(TopK(3))) == [{"master residual": 75}]
    assert remembered(entire_model, exchange=SharedSupport()) == [{"residual": 224}]
    assert remembered(entire_model, compressor=DGC(10)) == [{"residual": 224, "velocity": 224}]
    dense = remembered(entire_model, exchange="two-sided", exclude=("*.bias",))
    assert dense == [{"residual": 216, "master residual": 72}, {}]


@pytest.mark.parametrize(("levels", "most"), [(1, 2**30 - 1), (7, 153391689), (2**20, 1023)])
def test_levels_too_many_for_so_many_ranks_are_refused(levels, most):
    """2 s P must stay below 2^31; 2^31 - 1 is 14 times 153391689 and 1."""
    build(MODEL, layer_wise, options(compressor=QSGD(levels), exchange="reduce"), most)
    with pytest.raises(ConfigError, match="use exchange='gather', or fewer levels"):
        build(MODEL, layer_wise, options(compressor=QSGD(levels), exchange="reduce"), most + 1)


def test_another_factor():
    (plan,) = build(MODEL, entire_model, options(compressor=TopK(10)))
    changed = plan.at(25)
    assert changed.compressor == TopK(25)
    assert plan.compressor == TopK(10)
    assert (changed.unit, changed.exchange, changed.feedback, changed.dense) == (plan.unit, plan.exchange, plan.feedback, False)
    with pytest.raises(ConfigError, match=r"TopK: factor must be a finite number >= 1 .*, got 0.5"):
        plan.at(0.5)


def test_a_payload_rides_if_it_is_a_summable_array_of_one_parameter():
    def rides(scope, **changes):
        return {plan.rides for plan in build(MODEL, scope, options(**changes))}

    assert rides(layer_wise, compressor=RandomK(10)) == rides(layer_wise, compressor=Half()) == {True}
    assert rides(layer_wise, compressor=TopK(10)) == rides(layer_wise, compressor=Half(), exchange="gather") == {False}
    assert rides(entire_model, compressor=RandomK(10)) == {False}
    assert rides(layer_wise, compressor=QSGD(7), exchange="reduce") == {False}  # two rounds
    assert rides(layer_wise, compressor=PowerSGD(2)) == {False}
    assert rides(layer_wise, exchange="shared-support") == rides(layer_wise, exchange="two-sided") == {False}
    assert rides(entire_model, compressor=RandomK(10), exclude=("*.bias",)) == {False, True}


def test_a_gradient_is_untouched_if_it_travels_as_it_is_and_nothing_is_kept():
    def untouched(scope, **changes):
        return [plan.untouched for plan in build(MODEL[:2], scope, options(**changes))]

    assert untouched(layer_wise, compressor=Identity()) == [True, True]
    assert untouched(layer_wise, compressor=TopK(10), exclude=("*.bias",)) == [False, True]
    assert untouched(layer_wise, compressor=Identity(), feedback=True) == [False, False]
    assert untouched(layer_wise, compressor=Identity(), exchange="gather") == [False, False]
    assert untouched(entire_model, compressor=Identity()) == [True]
    assert untouched(layer_wise, compressor=RandomK(1), feedback=False) == [False, False]
    assert untouched(layer_wise, compressor=Half()) == [False, False]


@pytest.mark.parametrize(
    ("compressor", "feedback", "expected"),
    [
        (TopK(10), None, True),
        (TopK(10), False, True),
        (RandomK(10), False, True),
        (Identity(), None, False),
        (Half(), None, False),
        (Half(), True, True),
        (Identity(), True, True),
        (QSGD(7), None, True),
        (SignSGD(), None, True),
        (PowerSGD(2), False, True),
        (DGC(10), None, True),
    ],
)
def test_gradients_are_checked_where_nan_would_be_lost_or_stay(compressor, feedback, expected):
    for plan in build(MODEL, layer_wise, options(compressor=compressor, feedback=feedback)):
        assert plan.checks == expected
