# Sourced by check.sh: images and containers, by Docker where its engine runs, else by buildah.
# shellcheck shell=bash disable=SC2154
# From check.sh: $name of the container, $work for files, $wheels of Horovod, $image.

# With what BuildKit and Compose's second version bring.
has_docker() {
  [ -z "${BUILDAH_ISOLATION:-}" ] && docker info >/dev/null 2>&1 && docker buildx version >/dev/null 2>&1 &&
    docker compose version >/dev/null 2>&1
}

prepare_engine() {
  if has_docker; then
    engine=docker
    return
  fi
  engine=buildah
  local missing=""
  command -v buildah >/dev/null || missing="buildah"
  command -v ip >/dev/null || missing="$missing iproute2"
  command -v ssh-keygen >/dev/null || missing="$missing openssh-client"
  [ -n "${BASE:-}" ] || command -v mmdebstrap >/dev/null || missing="$missing mmdebstrap"
  if [ "$(id -u)" != 0 ]; then
    echo "error: no Docker engine with Buildx and Compose 2 answers, and building with buildah needs root" >&2
    return 1
  fi
  if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null; then
      echo "error: install $missing, or start a Docker engine" >&2
      return 1
    fi
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
  fi
  export BUILDAH_ISOLATION=chroot
  [ -n "${BASE:-}" ] || make_base
}

# Debian's own sources, as this machine has them: those that name its updates.
lend_apt_sources() {
  local file
  mkdir -p "$work/apt"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
    grep -qsE '^[^#]*bookworm-(updates|security)' "$file" || continue
    cp "$file" "$work/apt/$(basename "$file" | sed 's/^sources.list$/main.list/')"
  done
  if [ -z "$(ls "$work/apt")" ]; then
    echo "error: a base of Debian 12 is made from a Debian 12's own sources, and this machine has none. Name one: BASE=debian:bookworm-slim" >&2
    return 1
  fi
}

make_base() {
  BASE=localhost/hvd_adaptive-base
  lend_apt_sources
  ! buildah inspect --type image "$BASE" >/dev/null 2>&1 || return 0
  # What it was made from is not kept: builds and runs are lent it.
  # shellcheck disable=SC2016 # mmdebstrap expands it
  mmdebstrap --quiet --variant=minbase --customize-hook='rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/*' \
    bookworm "$work/base.tar" "$work"/apt/*
  buildah from --name "$name-base" scratch >/dev/null
  buildah add --quiet "$name-base" "$work/base.tar" / >/dev/null
  buildah commit --quiet "$name-base" "$BASE" >/dev/null
  buildah rm "$name-base" >/dev/null
  rm "$work/base.tar"
}

# One file with all that pip is told here; the folders it names are under /mnt for builds and runs.
lend_pip_configuration() {
  mkdir -p "$work/mnt"
  python3 docker/pip_configuration.py "$work/mnt" >"$work/pip.conf"
}

build_image() { # DOCKERFILE IMAGE [OPTIONS]
  local file=$1 tag=$2
  shift 2
  local options=(-f "$file" -t "$tag" --build-context wheels="$wheels" --build-context lent="$work/mnt"
    --secret "id=pip.conf,src=$work/pip.conf" "$@")
  if [ "$engine" = docker ]; then
    docker build ${BASE:+--build-arg "BASE=$BASE"} "${options[@]}" .
    return
  fi
  [ ! -d "$work/apt" ] || options+=(--volume "$work/apt:/etc/apt/sources.list.d:ro")
  buildah build --layers --format docker --network host --build-arg "BASE=$BASE" "${options[@]}" .
}

start_containers() {
  [ "$engine" = docker ] || buildah from --name "$name" "$image" >/dev/null
}

# A command of the shell, run in a container by a user of it. As root it also has the source, in /source, and pip's configuration.
# Where buildah isolates by chroot, nothing but localhost is known by name, and Gloo needs its own.
run_as() { # USER COMMAND
  local user=$1 lent=()
  shift
  [ "$user" != root ] || lent=(--volume "$PWD:/source:ro" --volume "$work/pip.conf:/etc/pip.conf:ro" --volume "$work/mnt:/mnt:ro")
  if [ "$engine" = docker ]; then
    docker run --rm --name "$name" --shm-size=1g --user "$user" ${lent[@]+"${lent[@]}"} "$image" bash -c "$*"
    return
  fi
  buildah run --hostname localhost --user "$user" --network host ${lent[@]+"${lent[@]}"} "$name" -- bash -c "$*"
}

image_size() { # IMAGE
  if [ "$engine" = docker ]; then
    docker image inspect --format '{{.Size}}' "$1" | awk '{printf "%.2f GB\n", $1 / 1e9}'
  else
    buildah images --format '{{.Size}}' "$1"
  fi
}

remove_containers() {
  local container
  if [ "${engine:-}" = docker ]; then
    docker rm --force "$name" >/dev/null 2>&1 || true
  elif [ "${engine:-}" = buildah ]; then
    for container in "$name" "$name-base" "$name-a" "$name-b"; do buildah rm "$container" >/dev/null 2>&1 || true; done
  fi
}
