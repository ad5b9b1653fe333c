"""The bar, drawn on a file instead of a terminal."""

from pathlib import Path

import pytest

from hvd_adaptive import progress
from hvd_adaptive.progress import shown


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that stands for the terminal."""
    monkeypatch.setattr(progress, "_TERMINAL", tmp_path / "tty")
    return tmp_path / "tty"


def test_a_bar_is_drawn_and_wiped_away(drawn: Path) -> None:
    assert list(shown(range(1000, 1004), 4, "measuring", show=True)) == [1000, 1001, 1002, 1003]
    text = drawn.read_text()
    assert "measuring" in text
    assert "4/4" in text
    assert text.endswith("\x1b[2K")  # the line is erased


def test_it_is_drawn_a_few_times_a_second_only(drawn: Path) -> None:
    assert len(list(shown(range(10_000), 10_000, "measuring", show=True))) == 10_000
    assert drawn.read_text().count("measuring") < 100  # 10,000 items take far less than 10 s, at ten times a second


def test_it_is_wiped_away_when_the_reader_stops(drawn: Path) -> None:
    items = shown(iter(range(3)), 3, "measuring", show=True)
    assert next(items) == 0
    items.close()
    assert drawn.read_text().endswith("\x1b[2K")


def test_an_item_is_passed_on_before_the_next_is_asked_for(drawn: Path) -> None:
    asked: list[int] = []
    for item in shown((asked.append(n) or n for n in range(3)), 3, "measuring", show=True):
        assert asked == list(range(item + 1))
    assert len(asked) == 3


def test_no_terminal_no_bar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(progress, "_TERMINAL", tmp_path / "no" / "tty")
    assert list(shown(range(4), 4, "measuring", show=True)) == [0, 1, 2, 3]


def test_who_keeps_quiet_opens_no_terminal(drawn: Path) -> None:
    assert list(shown(range(4), 4, "measuring", show=False)) == [0, 1, 2, 3]
    assert not drawn.exists()
