"""Ranks on several hosts train as on one, bit for bit: over MPI and Gloo, in every scope, steered, packed, in every framework.

Compared bit for bit, so that Horovod adds up ranks in one order but where it is said. Two ranks have one sum, whatever the order.
"""

from typing import Any

import pytest
from rank_results import Found, assert_trained
from sequences import SKEWED

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(300)]  # each test launches ranks on hosts, which takes seconds
TORCH, TENSORFLOW = "torch_training.py", "tensorflow_training.py"
SCOPES = ("layer-wise", "entire-model", "bucketed")
OTHERS = ("reduce", "shared-support", "two-sided", "powersgd", "gravac")
GLOO = ("--gloo",)


def assert_as_on_one_host(spread: list[Found], alone: list[Found]) -> None:
    found, expected = assert_trained(spread), assert_trained(alone)
    assert found == {name: expected[name] for name in found}
    assert len({one["host"] for one in spread}) > 1


@pytest.mark.quick
def test_two_hosts_over_mpi_and_gloo(two_hosts: Any, launch: Any, launch_here: Any) -> None:
    cases = (*SCOPES, "gravac", "packed")
    alone = launch_here(2, TORCH, *cases)
    assert_as_on_one_host(launch(two_hosts, "a:1,b:1", TORCH, *SCOPES, flags=GLOO), alone)
    found = launch(two_hosts, "a:1,b:1", TORCH, *cases)
    assert_as_on_one_host(found, alone)
    assert_packed(found)
    assert found[0]["cases"]["gravac"]["factor"] > 2.5  # it starts with 2


def assert_packed(found: list[Found]) -> None:
    """Every element of every sequence was in one block of one rank."""
    blocks = [block for one in found for batch in one["cases"]["packed"]["seen"] for block in batch]
    cuts: dict[int, list[tuple[int, int]]] = {}
    for sequence, first, end in (entry for block in blocks for entry in block):
        cuts.setdefault(sequence, []).append((first, end))
    assert {sequence: [(0, length)] for sequence, length in enumerate(SKEWED)} == cuts


@pytest.mark.parametrize(
    ("slots", "flags"), [("a:3,b:1", ()), ("a:4,b:4", ()), ("a:2,b:2", GLOO)], ids=["3+1, MPI", "4+4, MPI", "2+2, Gloo"]
)
def test_several_ranks_on_each_host(two_hosts: Any, launch: Any, launch_here: Any, slots: str, flags: tuple[str, ...]) -> None:
    cases = ("layer-wise", "bucketed", "gravac", "packed")
    found = launch(two_hosts, slots, TORCH, *cases, flags=flags)
    assert_as_on_one_host(found, launch_here(len(found), TORCH, *cases, gloo=bool(flags)))


@pytest.mark.parametrize("flags", [(), GLOO], ids=["MPI", "Gloo"])
def test_four_hosts(four_hosts: Any, launch: Any, launch_here: Any, flags: tuple[str, ...]) -> None:
    cases = (*SCOPES, *OTHERS)
    found = launch(four_hosts, "a:1,b:1,c:1,d:1", TORCH, *cases, flags=flags)
    assert_as_on_one_host(found, launch_here(4, TORCH, *cases, gloo=bool(flags)))


def test_horovod_as_it_comes(two_hosts: Any, launch: Any) -> None:
    """What it fuses, and how long steps take, differ by run, so this one is compared with none; its ranks agree all the same."""
    assert_trained(launch(two_hosts, "a:2,b:1", TORCH, *SCOPES, *OTHERS, "gravac per unit", more={}))


@pytest.mark.parametrize("flags", [(), GLOO], ids=["MPI", "Gloo"])
def test_tensorflow_and_keras(two_hosts: Any, launch: Any, launch_here: Any, flags: tuple[str, ...]) -> None:
    found = launch(two_hosts, "a:1,b:1", TENSORFLOW, flags=flags)
    assert set(found[0]["cases"]) == {"tape", "fit"}
    assert_as_on_one_host(found, launch_here(2, TENSORFLOW))
