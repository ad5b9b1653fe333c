"""Files of lengths: what comes back, what is refused, what is measured again."""

import logging

import numpy as np
import pytest

from hvd_adaptive import ConfigError
from hvd_adaptive.bload.cache import MAGIC, load, save

IDENTITY = {"samples": 4, "key": "speech v1"}
LENGTHS = np.array([3, 1, 2**31 - 1, 10], np.int32)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "lengths"
    save(path, IDENTITY, LENGTHS)
    return path


def test_what_was_saved_comes_back(path):
    found = load(path, IDENTITY)
    assert found.dtype == np.int32
    assert found.tolist() == LENGTHS.tolist()
    assert found.flags.writeable


def test_no_lengths_are_lengths_too(tmp_path):
    save(tmp_path / "none", {"samples": 0}, np.zeros(0, np.int32))
    assert load(tmp_path / "none", {"samples": 0}).size == 0


def test_no_file_yet(tmp_path):
    assert load(tmp_path / "new", IDENTITY) is None


def test_the_folder_must_be_there(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no folder .*; create it first"):
        load(tmp_path / "missing" / "new", IDENTITY)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, IDENTITY)


@pytest.mark.parametrize("identity", [{"samples": 5, "key": "speech v1"}, {"samples": 4, "key": "v2"}, {"samples": 4}])
def test_another_data_set_is_refused_and_left_alone(path, identity):
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"is of another data set.*speech v1.*give another path, or delete it"):
        load(path, identity)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"PK\x03\x04", b"\x80\x04", MAGIC.replace(b"1", b"2")])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "train.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="holds no lengths, so it is left alone"):
        load(path, IDENTITY)
    assert path.read_bytes() == content


def test_every_damage_is_found(path, caplog):
    """Every shorter file, and every byte after the first line changed."""
    whole = path.read_bytes()
    damaged = [whole[:end] for end in range(len(whole))]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(MAGIC), len(whole))]
    for content in damaged:
        path.write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "hvd_adaptive"):
            assert load(path, IDENTITY) is None
        assert "is damaged; the lengths are measured again" in caplog.text


def test_a_file_is_replaced_in_one_go(path, monkeypatch):
    before = path.read_bytes()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        save(path, IDENTITY, LENGTHS[:1])
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_nothing_else_is_left_in_the_folder(path):
    save(path, IDENTITY, LENGTHS[:2])
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert load(path, IDENTITY).tolist() == [3, 1]
