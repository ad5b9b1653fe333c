#!/usr/bin/env bash
# Installs what is missing, and nothing twice: system packages, .venv, the frameworks, Horovod, this package (as the wheel users get).
#
#   scripts/setup.sh [--hosts] [--no-tests] [--environment]
#
#   --hosts                   also what the tests' hosts need: network namespaces and sshd; without it those tests are skipped
#   --no-tests                without what only tests and benchmarks need
#   --environment             all but this package, of which only scripts and requirements have to be there: a layer of an image
#   PYTHON                    Python 3.10, 3.11 or 3.12 to use (default: the first found)
#   HVD_ADAPTIVE_FRAMEWORKS   the frameworks to install (default: requirements/frameworks.txt)
#   HVD_ADAPTIVE_CACHE        where Horovod's wheel is kept (default: ~/.cache/hvd-adaptive)
set -euo pipefail
cd "$(dirname "$0")/.."
frameworks=${HVD_ADAPTIVE_FRAMEWORKS:-requirements/frameworks.txt}

fail() {
  echo "error: $*" >&2
  exit 1
}

hosts="" tests=yes package=yes
for option; do
  case $option in
    --hosts) hosts=yes ;;
    --no-tests) tests="" ;;
    --environment) package="" ;;
    *) fail "scripts/setup.sh knows --hosts, --no-tests and --environment; given: $option" ;;
  esac
done

find_python() {
  local candidate found=""
  for candidate in ${PYTHON:-python3 python3.12 python3.11 python3.10}; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    found="$found $candidate ($("$candidate" -V 2>&1 | cut -d' ' -f2))"
    if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  fail "needs Python 3.10, 3.11 or 3.12, because TensorFlow and Horovod 0.28.1 do; found:${found:- none}." \
    "Install one and name it: PYTHON=python3.11 bash scripts/demo.sh"
}

missing_system_packages() {
  local version
  version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
  "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "$version-venv"
  "$python" -c 'import sysconfig, sys; from pathlib import Path
sys.exit(not (Path(sysconfig.get_path("include")) / "Python.h").exists())' || echo "$version-dev"
  command -v mpirun >/dev/null && command -v mpicxx >/dev/null || echo openmpi-bin libopenmpi-dev
  command -v g++ >/dev/null || echo g++
  command -v make >/dev/null || echo make
  command -v ssh >/dev/null || echo openssh-client
  [ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || echo dataset-fashion-mnist
  command -v bible >/dev/null || echo bible-kjv
}

install_system_packages() {
  local packages as_root=""
  packages=$(missing_system_packages | xargs)
  [ -n "$packages" ] || return 0
  command -v apt-get >/dev/null || fail "missing: $packages (Debian's names), and there is no apt-get to install them with. Install them yourself"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "missing system packages, and neither root nor sudo to install them with. Ask for: apt-get install $packages"
    as_root=sudo
  fi
  echo "Installing system packages: $packages"
  $as_root apt-get update -qq
  # shellcheck disable=SC2086
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null ||
    fail "apt-get could not install: $packages"
}

# An ssh server is nothing to leave on a person's machine, where it would start with the machine: only where no system manager runs.
install_hosts() {
  local packages=""
  command -v ip >/dev/null && command -v tc >/dev/null || packages=iproute2
  [ -n "$(PATH=$PATH:/usr/sbin command -v sshd)" ] || packages="$packages openssh-server"
  [ -n "$packages" ] || return 0
  if [ "$(id -u)" != 0 ] || [ -d /run/systemd/system ] || ! command -v apt-get >/dev/null; then
    echo "Not installing ${packages# }, so tests on several hosts are skipped"
    return 0
  fi
  echo "Installing for the tests' hosts: ${packages# }"
  [ -e /usr/sbin/policy-rc.d ] || {
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # no service shall start: hosts start an sshd of their own
    chmod +x /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  }
  # shellcheck disable=SC2086
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null ||
    echo "apt-get could not install ${packages# }, so tests on several hosts are skipped"
}

# What the environment depends on: if it changes, the environment is brought up to date.
environment_stamp() {
  {
    cat requirements/build.txt "$frameworks" requirements/run.txt requirements/constraints.txt scripts/build_horovod.sh
    "$python" -V
    mpirun --version 2>/dev/null | head -n 1
    env | grep -E '^HOROVOD_(BUILD|CPU|CUDA|GPU|NCCL|WITH)' | LC_ALL=C sort || true # what Horovod is built with
  } | cksum
}

install_environment() {
  local stamp wheel
  stamp=$(environment_stamp)
  [ "$(cat .venv/stamp-environment 2>/dev/null)" = "$stamp" ] && return
  echo "Installing the frameworks and Horovod into .venv"
  [ "$(.venv/bin/python -V 2>/dev/null)" = "$("$python" -V)" ] || "$python" -m venv --clear .venv
  .venv/bin/python -m pip install --quiet -c requirements/constraints.txt -r requirements/build.txt -r "$frameworks" -r requirements/run.txt
  wheel=$(bash scripts/build_horovod.sh "$PWD/.venv/bin/python")
  .venv/bin/python -m pip install --quiet --no-deps --force-reinstall "$wheel"
  echo "$stamp" >.venv/stamp-environment
}

install_tools() {
  local stamp
  stamp=$(cksum <requirements/dev.txt)
  [ "$(cat .venv/stamp-tools 2>/dev/null)" = "$stamp" ] && return
  echo "Installing tools into .venv"
  .venv/bin/python -m pip install --quiet -r requirements/dev.txt
  echo "$stamp" >.venv/stamp-tools
}

package_stamp() {
  find setup.py pyproject.toml README.md hvd_adaptive -type f ! -name '*.pyc' | LC_ALL=C sort | xargs cat | cksum
}

install_package() {
  local stamp wheel
  stamp=$(package_stamp)
  [ "$(cat .venv/stamp-package 2>/dev/null)" = "$stamp" ] && return
  echo "Building and installing the wheel of hvd_adaptive"
  rm -rf build dist
  .venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
  wheel=$(find dist -name '*.whl')
  .venv/bin/python -m pip install --quiet --no-deps --force-reinstall "$wheel"
  rm -rf build hvd_adaptive.egg-info
  echo "$stamp" >.venv/stamp-package
}

python=$(find_python)
install_system_packages
[ -z "$hosts" ] || install_hosts
install_environment
[ -z "$tests" ] || install_tools
[ -z "$package" ] || install_package
