"""Horovod and the frameworks, as their metadata and files tell without loading them."""

from importlib import metadata
from pathlib import Path

from hvd_adaptive.doctor.finding import Finding

_TRIED = "0.28.1"
_INSTALL = "from a clone of this project: bash scripts/setup.sh"
_LIBRARIES = {"torch": "horovod/torch/mpi_lib*.so", "tensorflow": "horovod/tensorflow/mpi_lib*.so"}
_DISTRIBUTIONS = {"torch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-cpu")}


def examine() -> list[Finding]:
    """Of this Python's packages."""
    versions = {name: _first_version(names) for name, names in _DISTRIBUTIONS.items()}
    return [
        Finding("hvd_adaptive", "ok", metadata.version("hvd_adaptive")),
        horovod(_version("horovod"), built_for(), [name for name, version in versions.items() if version]),
        *(_optional(name, version, f"only {name}'s binding needs it") for name, version in versions.items()),
        _optional("mpi4py", _version("mpi4py"), "without it, agreement='exact' goes through Horovod and takes longer"),
    ]


def horovod(version: str | None, libraries: list[str], frameworks: list[str]) -> Finding:
    """Its version, and whether it was built for a framework that is there.

    Args:
        version: None if it is not installed.
        libraries: the frameworks it was built for.
        frameworks: those that are installed.
    """
    if version is None:
        return Finding("horovod", "failure", "not installed", f"install it, {_INSTALL}")
    found = f"{version}, built for {' and '.join(libraries) or 'no framework'}"
    usable = [name for name in libraries if name in frameworks]
    if not usable:
        have = f"installed: {', '.join(frameworks) or 'none'}"
        return Finding("horovod", "failure", found, f"build it for a framework that is installed ({have}), {_INSTALL}")
    if version != _TRIED:
        return Finding("horovod", "warning", found, f"this package was tried with Horovod {_TRIED} only")
    missing = [name for name in frameworks if name not in libraries]
    if missing:
        return Finding("horovod", "warning", found, f"{' and '.join(missing)} cannot be used: build Horovod again, {_INSTALL}")
    return Finding("horovod", "ok", found)


def built_for() -> list[str]:
    """Frameworks whose library Horovod has."""
    try:
        root = Path(str(metadata.distribution("horovod").locate_file("")))
    except metadata.PackageNotFoundError:
        return []
    return [name for name, pattern in _LIBRARIES.items() if any(root.glob(pattern))]


def _optional(name: str, version: str | None, why: str) -> Finding:
    return Finding(name, "ok", version) if version else Finding(name, "warning", "not installed", why)


def _first_version(names: tuple[str, ...]) -> str | None:
    return next((version for version in map(_version, names) if version), None)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
