"""Packaging. Metadata is here, tool settings are in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="hvd_adaptive",
    version="0.1.0",
    description="Gradient compression for stock Horovod: layer-wise and entire-model, under one compression= object",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(include=["hvd_adaptive", "hvd_adaptive.*"]),
    package_data={"hvd_adaptive": ["py.typed"]},
    # Horovod and the frameworks are the user's: installing this package must never rebuild or replace them.
    install_requires=["numba", "numpy", "rich", "typer"],
    entry_points={"console_scripts": ["hvd-adaptive = hvd_adaptive.cli.app:app"]},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
