"""The bar, drawn on a file instead of a terminal."""

import io
from typing import Any

import pytest

from hvd_adaptive.torch.bload import progress
from hvd_adaptive.torch.bload.progress import shown, terminal


def test_items_pass_through_without_a_terminal() -> None:
    assert list(shown(range(4), 4, "measuring", None)) == [0, 1, 2, 3]


def test_a_bar_is_drawn_and_wiped_away(monkeypatch: Any) -> None:
    clock = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    file = io.StringIO()
    assert list(shown(range(1000, 1004), 4, "measuring", file)) == [1000, 1001, 1002, 1003]
    drawn = file.getvalue().split("\r")
    assert "measuring [" in drawn[1]
    assert "0 of 4\033[K" in drawn[1]
    assert "] 3 of 4, 1 s left" in drawn[4]
    assert "=" * 22 + " " * 8 in drawn[4]
    assert drawn[-1] == "\033[K"


def test_it_is_drawn_a_few_times_a_second_only() -> None:
    file = io.StringIO()
    assert len(list(shown(range(10_000), 10_000, "measuring", file))) == 10_000
    assert file.getvalue().count("measuring") < 100  # 10,000 items take far less than 20 s


def test_it_is_wiped_away_when_an_item_fails() -> None:
    file = io.StringIO()
    items = shown(range(3), 3, "measuring", file)
    next(items)
    items.close()  # type: ignore[attr-defined]  # a generator, as its name says
    assert file.getvalue() == "\r\033[K"


def test_no_terminal_no_bar(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setattr(progress, "_TERMINAL", tmp_path / "no" / "tty")
    with terminal(show=True) as file:
        assert file is None


@pytest.mark.parametrize("show", [True, False])
def test_the_terminal_is_opened_only_if_it_is_shown(monkeypatch: Any, tmp_path: Any, show: bool) -> None:
    monkeypatch.setattr(progress, "_TERMINAL", tmp_path / "tty")
    with terminal(show=show) as file:
        assert (file is not None) == show
    assert (tmp_path / "tty").exists() == show
