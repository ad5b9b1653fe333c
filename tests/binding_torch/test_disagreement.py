"""Ranks that were configured differently are all told so, alike and soon; none is left waiting."""

from collections.abc import Callable
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from torch import nn
from training import attempt_soon, building, flat, model, optimizer_for, train

import hvd_adaptive.torch as hva
from hvd_adaptive import AgreementError, Fixed, HvdAdaptiveError, RandomK, TopK

SCOPES = list(hva.SCOPES)

Build = Callable[[], Any]


def plain() -> Any:
    return building("entire-model", TopK(20))(model())


def entire(compressor: Any, **options: Any) -> Build:
    return lambda: building("entire-model", compressor, **options)(model())


def of_parameters(change: Callable[[list[tuple[str, nn.Parameter]]], list[tuple[str, Any]]]) -> Build:
    return lambda: hva.EntireModel(change(list(model().named_parameters())), TopK(20))


def wide(named: list[tuple[str, nn.Parameter]]) -> list[tuple[str, nn.Parameter]]:
    return [(name, nn.Parameter(torch.zeros(60, 21)) if name == "0.weight" else p) for name, p in named]


def transposed(named: list[tuple[str, nn.Parameter]]) -> list[tuple[str, nn.Parameter]]:
    return [(name, nn.Parameter(torch.zeros(20, 60)) if name == "0.weight" else p) for name, p in named]


def swapped(named: list[tuple[str, nn.Parameter]]) -> list[tuple[str, nn.Parameter]]:
    return [named[2], named[1], named[0], *named[3:]]


def partly_frozen(named: list[tuple[str, nn.Parameter]]) -> list[tuple[str, nn.Parameter]]:
    named[3][1].requires_grad_(False)
    return named


DIFFERENT: dict[str, tuple[Build, Build, list[str]]] = {
    "compressor": (
        plain,
        entire(RandomK(20), exchange="gather"),
        ["compressor", "TopK(factor=20.0)", "RandomK(factor=20.0, unbiased=False)"],
    ),
    "factor": (plain, entire(TopK(21)), ["compressor", "factor=20.0", "factor=21.0"]),
    "scope": (plain, lambda: building("layer-wise", TopK(20))(model()), ["scope", "entire-model", "layer-wise"]),
    "seed": (plain, entire(TopK(20), seed=7), ["seed", "0", "7"]),
    "exchange": (entire(RandomK(20)), entire(RandomK(20), exchange="gather"), ["exchange", "Reduce()", "Gather()"]),
    "feedback": (plain, entire(TopK(20), feedback=False), ["feedback", "Residual(decay=1.0)", "NoFeedback()"]),
    "dense_below": (plain, entire(TopK(20), dense_below=100), ["dense_below", "100"]),
    "exclude": (plain, entire(TopK(20), exclude="*.bias"), ["exclude", "*.bias", "parameter '0.bias'", "in unit '0.bias'"]),
    "controller": (plain, entire(TopK(20), controller=Fixed(30)), ["controller", "None", "Fixed(factor=30.0)"]),
    "controller's factor": (
        entire(TopK(20), controller=Fixed(30)),
        entire(TopK(20), controller=Fixed(31)),
        ["controller", "factor=30.0", "factor=31.0"],
    ),
    "bucket size": (
        lambda: building("bucketed", TopK(20))(model()),
        lambda: building("bucketed", TopK(20), bucket_bytes=1 << 20)(model()),
        ["parameter '0.weight'", "bucket"],
    ),
    "an extra parameter": (
        plain,
        of_parameters(lambda named: [*named, ("extra", nn.Parameter(torch.zeros(3)))]),
        ["parameter 'extra'", "nothing"],
    ),
    "a missing parameter": (plain, of_parameters(lambda named: named[:-1]), ["parameter '4.bias'", "nothing"]),
    "another name": (
        plain,
        of_parameters(lambda named: [*named[:-1], ("head.bias", named[-1][1])]),
        ["parameter '4.bias'", "parameter 'head.bias'"],
    ),
    "another order": (plain, of_parameters(swapped), ["parameter '0.weight'", "number 0", "number 2"]),
    "another size": (plain, of_parameters(wide), ["parameter '0.weight'", "(60, 20)", "(60, 21)"]),
    "another shape of the same size": (plain, of_parameters(transposed), ["parameter '0.weight'", "(60, 20)", "(20, 60)"]),
    "another dtype": (
        plain,
        lambda: building("entire-model", TopK(20))(model().double()),
        ["parameter '0.weight'", "float32", "float64", "... and 1 more"],
    ),
    "frozen": (plain, of_parameters(partly_frozen), ["parameter '2.bias'", "frozen"]),
}


def building_differently(usual: Build, different: Build, odd_rank: int) -> None:
    (different if hvd.rank() == odd_rank else usual)()


def assert_told_alike(answers: list[Any], words: list[str]) -> None:
    for answer in answers:
        assert isinstance(answer, AgreementError), answer
        assert isinstance(answer, ValueError)
    assert len({str(answer) for answer in answers}) == 1
    assert [word for word in words if word not in str(answers[0])] == [], answers[0]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", list(DIFFERENT))
def test_every_rank_is_told_the_same(ranks: Any, size: int, name: str) -> None:
    usual, different, words = DIFFERENT[name]
    last = size - 1
    answers = attempt_soon(ranks(size), building_differently, usual, different, last)
    assert_told_alike(answers, [*words, "rank 0 has", f"rank {last} has"])


def test_it_may_be_rank_0_that_differs(ranks: Any) -> None:
    answers = attempt_soon(ranks(3), building_differently, plain, entire(TopK(21)), 0)
    assert_told_alike(answers, ["compressor", "rank 0 has TopK(factor=21.0)", "has TopK(factor=20.0)"])


def test_all_may_differ(ranks: Any) -> None:
    def on_rank() -> None:
        entire(TopK(20 + hvd.rank()), seed=hvd.rank())()

    answers = attempt_soon(ranks(3), on_rank)
    assert_told_alike(answers, ["compressor", "seed"])


def test_ranks_that_agree_in_other_words_are_not_refused(ranks: Any) -> None:
    """Same meaning, spelt differently."""

    def on_rank() -> int:
        compressor = TopK(20) if hvd.rank() else TopK(20.0)
        exclude = "*.bias" if hvd.rank() else ["*.bias"]
        module = model()
        return len(hva.EntireModel(module.named_parameters(), compressor, exclude=exclude).state_dict())

    assert len(set(ranks(2).run(on_rank))) == 1


def test_ranks_go_on_after_a_refusal(ranks: Any) -> None:
    def on_rank() -> torch.Tensor:
        for _ in range(2):
            with pytest.raises(AgreementError):
                entire(TopK(20 + hvd.rank()))()
        module = model()
        train(module, optimizer_for(module, building("layer-wise", TopK(20))(module)), 2)
        return flat(module)

    first, *others = ranks(3).run(on_rank)
    assert all(torch.equal(first, other) for other in others)


ILLEGAL: dict[str, tuple[Build, str]] = {
    "exchange": (entire(TopK(20), exchange="reduce"), "exchange"),
    "exclude": (entire(TopK(20), exclude="nothing.like.this"), "nothing.like.this"),
    "dense_below": (entire(TopK(20), dense_below=-1), "dense_below"),
    "all frozen": (lambda: building("entire-model", TopK(20))(model().requires_grad_(False)), "frozen"),
    "no parameters": (of_parameters(lambda named: named[:0]), "empty"),
}


@pytest.mark.parametrize("name", list(ILLEGAL))
def test_what_is_illegal_on_one_rank_only_stops_all(ranks: Any, name: str) -> None:
    """The rank at fault is told its fault; the others are told as well instead of waiting for it."""
    illegal, word = ILLEGAL[name]
    first, second = attempt_soon(ranks(2), building_differently, plain, illegal, 1)
    assert isinstance(second, HvdAdaptiveError), second
    assert word in str(second)
    assert isinstance(first, AgreementError), first
    assert "rank 1" in str(first)
    assert word in str(first)
