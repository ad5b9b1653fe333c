#!/usr/bin/env bash
# Installs what is missing, then checks style, types and layers, and runs the whole test suite against the installed wheel.
# Arguments are passed on to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
. scripts/environment.sh

ruff format --check --quiet .
ruff check --quiet .
mypy
lint-imports --no-cache >/dev/null || lint-imports --no-cache
HVD_ADAPTIVE_TESTED=wheel exec pytest "$@"
