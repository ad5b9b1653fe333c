#!/usr/bin/env bash
# Installs what is missing, then checks style, types and layers, and runs the test suite against the installed wheel.
#
#   scripts/test.sh [--full] [ARGUMENTS FOR PYTEST]
#
#   --full                    also those tests on several hosts and with many ranks that take longer than five minutes together
#
# Where hosts cannot be had (they need root, network namespaces, sshd), their tests are skipped and say why.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=(-m "not multihost or quick")
if [ "${1:-}" = --full ]; then
  tests=()
  shift
fi
bash scripts/setup.sh --hosts
. scripts/environment.sh

ruff format --check --quiet .
ruff check --quiet .
mypy
lint-imports --no-cache >/dev/null || lint-imports --no-cache
HVD_ADAPTIVE_TESTED=wheel exec pytest ${tests[@]+"${tests[@]}"} "$@"
