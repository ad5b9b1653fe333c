"""What Docker's files name is there; building and running them is docker/check.sh's part."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("Dockerfile*"))
names = pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)


def instructions(file: Path) -> list[list[str]]:
    """Words of each instruction, without comments."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return [shlex.split(line) for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]


def copied(file: Path) -> list[str]:
    """What is taken from the project."""
    words = [line[1:-1] for line in instructions(file) if line[0] == "COPY"]
    return [source for sources in words if not any(word.startswith("--from") for word in sources) for source in sources]


def system_packages_of_the_setup() -> set[str]:
    body = re.search(r"missing_system_packages\(\) \{(.*?)\n\}", (ROOT / "scripts" / "setup.sh").read_text(), re.DOTALL)
    assert body is not None
    told = re.findall(r'\|\| echo "?([^"\n]+)', body[1])
    return {package.replace("$version", "python3") for line in told for package in line.split()}


@names
def test_what_is_copied_is_there_and_not_ignored(file: Path) -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for source in copied(file):
        assert (ROOT / source).exists()
        assert source in let_in or source.split("/")[0] in let_in, source


@names
def test_system_packages_are_all_the_setup_wants(file: Path) -> None:
    installed = {word for line in instructions(file) if "apt-get" in line for word in line}
    wanted = system_packages_of_the_setup()
    assert {"g++", "openmpi-bin", "python3-dev"} <= wanted
    assert wanted <= installed


@names
def test_the_environments_layer_has_what_the_setup_reads(file: Path) -> None:
    lines = instructions(file)
    end = next(n for n, line in enumerate(lines) if line[0] == "RUN" and "--environment" in line)
    there = {word for line in lines[:end] if line[0] == "COPY" for word in line[1:-1]}
    requirements = {f"requirements/{name}.txt" for name in ("build", "constraints", "run")}
    assert {"scripts/setup.sh", "scripts/build_horovod.sh", *requirements} <= there
    assert any(word.startswith("requirements/frameworks") for word in there)
    assert not any(word.startswith("hvd_adaptive") for word in there), "what changes often would build Horovod anew"


@names
def test_packages_are_pinned(file: Path) -> None:
    sources = [source for source in copied(file) if source.startswith("requirements/")]
    assert len(sources) == 4
    for source in sources:
        lines = [line.partition(";")[0] for line in (ROOT / source).read_text().splitlines() if line and not line.startswith("#")]
        assert lines
        assert all(line.count("==") == 1 for line in lines), source


@names
def test_the_user_is_not_root_and_health_is_the_doctors(file: Path) -> None:
    lines = instructions(file)
    assert [line[1] for line in lines if line[0] == "USER"][-1] == "1000"
    assert any(line[0] == "HEALTHCHECK" and {"[hvd-adaptive,", "doctor]"} <= set(line) for line in lines)


@names
def test_a_host_that_is_gone_is_missed_as_the_documents_say(file: Path) -> None:
    told = set(re.findall(r"OMPI_MCA_oob_tcp_keepalive_\w+=\d+", (ROOT / "docs" / "multihost.md").read_text()))
    assert len(told) == 2
    assert told <= {word for line in instructions(file) if line[0] == "ENV" for word in line}


@names
def test_hadolint_finds_nothing(file: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("requirements/dev.txt has hadolint for x86_64 only")
    run = subprocess.run([hadolint, "--no-color", file], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return loaded


def test_compose_builds_what_is_there(compose: dict[str, Any]) -> None:
    built = [service["build"] for service in compose["services"].values() if "build" in service]
    assert built
    for build in built:
        context = DOCKER / build["context"]
        assert context.resolve() == ROOT
        assert (context / build["dockerfile"]).is_file()
    assert {service["image"] for service in compose["services"].values()} == {"${HVD_IMAGE:-hvd_adaptive}"}


def test_compose_ends_with_the_host_that_launches(compose: dict[str, Any]) -> None:
    """Whichever ends first ends all of them, also one that was done."""
    waiting = [service["command"] for name, service in compose["services"].items() if name != "a"]
    assert [command[-1].split(";")[-1].split() for command in waiting] == [["exec", "hvd-host"]]


def test_compose_launches_as_many_ranks_as_its_hosts_have(compose: dict[str, Any]) -> None:
    services = compose["services"]
    command = services["a"]["command"]
    hosts = dict(host.split(":") for host in command[command.index("-H") + 1].split(","))
    assert sum(map(int, hosts.values())) == int(command[command.index("-np") + 1])
    for host in hosts:
        assert services[host]["hostname"] == host
        assert services[host]["shm_size"] == "1g"
    assert command[0] == "hvd-host"  # as b's last: the test below
    assert (ROOT / next(word for word in command if word.endswith(".py"))).is_file()


def test_compose_gives_all_hosts_the_keys_that_hosts_look_for(compose: dict[str, Any]) -> None:
    key = re.search(r"HVD_KEY:-([^}]+)/([^/}]+)}", (DOCKER / "host.sh").read_text())
    assert key is not None
    folder, name = key.groups()
    assert "keys" in compose["volumes"]
    mounts = {service: options["volumes"] for service, options in compose["services"].items()}
    assert mounts == {"b": [f"keys:{folder}"], "a": [f"keys:{folder}:ro"]}
    assert f"-f {folder}/{name}" in compose["services"]["b"]["command"][2]
    assert compose["services"]["a"]["depends_on"] == {"b": {"condition": "service_healthy"}}  # until then there is none


def test_the_images_ssh_knows_hosts_although_horovodrun_asks_it_not_to() -> None:
    command = [DOCKER / "ssh.sh", "-o", "StrictHostKeyChecking=no", "-G", "b"]
    settings = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "stricthostkeychecking true" in settings


def test_quick_tests_are_there() -> None:
    listed = [line for line in (DOCKER / "quick-tests.txt").read_text().splitlines() if not line.startswith("#")]
    assert listed
    assert all((ROOT / line).exists() for line in listed)
