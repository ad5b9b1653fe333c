"""The hosts themselves: nothing of them stays, however the tests end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.multihost, pytest.mark.quick]
TESTS = """
import json, time
from pathlib import Path
import hosts


def test_that_is_ended() -> None:
    with hosts.cluster(2, "100mbit") as found:
        Path("found.json").write_text(json.dumps([str(found.folder), *found.spaces.values()]))
        print("ready", flush=True)
        time.sleep(60)


def test_that_follows() -> None:
    print("went on")
"""


def test_sigterm_ends_all_tests_and_hosts(two_hosts: Any, tmp_path: Path) -> None:
    (tmp_path / "test_ended.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-sqp", "no:cacheprovider", "test_ended.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as process:
        assert process.stdout is not None
        assert any("ready" in line for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        said = process.stdout.read()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    assert "went on" not in said
    folder, *spaces = json.loads((tmp_path / "found.json").read_text())
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not [space for space in spaces if space in left]
    assert not Path(folder).exists()
