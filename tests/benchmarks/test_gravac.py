"""The benchmark of controllers reports what it should; shaped links have their rate, and leave nothing behind."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FAILS = "import link\nwith link.hosts('100mbit', 2):\n    raise RuntimeError"
WAITS = "import link, time\nwith link.hosts('100mbit', 2):\n    print('up', flush=True)\n    time.sleep(60)"


def reason_without_hosts() -> str:
    """Why network namespaces cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not all(map(shutil.which, ("ip", "tc"))):
        return "network namespaces need ip and tc (apt-get install iproute2)"
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import link  # noqa: PLC0415 - a program's file, found only while its folder is on the path

        with link.hosts("100mbit", 1):
            return ""
    except SystemExit as error:
        return str(error)
    finally:
        sys.path.remove(str(BENCHMARKS))


# Hosts on one machine need rights and a kernel that containers may lack; the reason says which.
needs_hosts = pytest.mark.skipif(bool(REASON := reason_without_hosts()), reason=REASON)


def left(pid: int) -> list[str]:
    """Namespaces of a process."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.startswith(f"hva{pid}-")]


def start(program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=BENCHMARKS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


@pytest.mark.timeout(300)
def test_gravac_reports_every_run(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "gravac.py"), "--task", "fashion", "--steps", "30", "--seeds", "1"]
    command += ["--only", "dense", "topk_100", "gravac", "--json", "--out", str(tmp_path)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    (line,) = printed.splitlines()
    found = json.loads(line)
    assert [found[key] for key in ("task", "link", "ranks", "steps", "seeds")] == ["fashion", "none", 2, 30, 1]
    runs, dense = found["runs"], 30 * found["parameters"]
    assert list(runs) == ["dense", "topk_100", "gravac"]
    for run in runs.values():
        assert {"quality", "floats_sent", "bytes_sent", "seconds", "median_step", "seconds_to_dense_quality"} == run.keys()
        assert run["quality"] > 15  # guessing gives 10
        assert run["seconds"] > 30 * run["median_step"] / 2 > 0
    assert (runs["dense"]["floats_sent"], runs["dense"]["bytes_sent"]) == (dense, 4 * dense)
    assert 0 < runs["dense"]["seconds_to_dense_quality"] <= runs["dense"]["seconds"]
    assert runs["topk_100"]["floats_sent"] == pytest.approx(dense / 100, abs=30)
    assert runs["topk_100"]["floats_sent"] < runs["gravac"]["floats_sent"] <= dense
    records = [json.loads(text) for text in (tmp_path / "fashion_none_gravac.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == list(range(30))
    curves = json.loads((tmp_path / "fashion_none.json").read_text())["runs"]
    assert [point[0] for point in curves["gravac"]["curve"]] == [25, 30]
    assert (tmp_path / "fashion_none.png").read_bytes().startswith(b"\x89PNG")


@needs_hosts
def test_a_link_has_its_rate() -> None:
    command = [sys.executable, str(BENCHMARKS / "link.py"), "--link", "100mbit", "--megabytes", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        printed = running.communicate()[0]
    assert running.returncode == 0
    found = json.loads(printed)
    # Of two ranks, each sends as much as is reduced: 5 MB at 12.5 MB/s, but for two bursts of 128 KiB that are free.
    assert found["seconds"] > (5e6 - 2 * 131072) / 12.5e6
    assert found["addresses"] == ["10.87.0.1", "10.87.0.2"]
    assert found["local_size"] == 1
    assert left(running.pid) == []


@needs_hosts
@pytest.mark.parametrize(("program", "end"), [(FAILS, None), (WAITS, "terminate")], ids=["error", "SIGTERM"])
def test_hosts_are_removed_whatever_happens(program: str, end: str | None) -> None:
    with start(program) as running:
        if end is not None:
            assert running.stdout is not None
            assert running.stdout.readline() == "up\n"
            assert len(left(running.pid)) == 3
            running.terminate()
        assert running.wait(30) != 0
    assert left(running.pid) == []
