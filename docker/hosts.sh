# Sourced by check.sh: two containers of the image as two hosts, with a network of their own, as compose.yaml has them.
# shellcheck shell=bash disable=SC2154

compose() { HVD_IMAGE=$image docker compose -p "$name" -f docker/compose.yaml "$@"; } # by a name of its own, as others may run one

on_two_hosts() { # COMMAND...
  if [ "$engine" = docker ]; then
    compose run --rm --use-aliases -T a hvd-host "$@"
    return
  fi
  local host number=0 address=10.91.7
  mkdir -m 700 "$work/keys"
  ssh-keygen -q -t ed25519 -N "" -C hosts -f "$work/keys/id_ed25519"
  chown -R 1000 "$work/keys"
  ip netns add "$name-a"
  ip netns add "$name-b"
  ip -n "$name-a" link add eth0 type veth peer name eth0 netns "$name-b"
  for host in a b; do
    number=$((number + 1))
    ip -n "$name-$host" address add "$address.$number/24" dev eth0
    ip -n "$name-$host" link set eth0 up
    ip -n "$name-$host" link set lo up
    buildah from --name "$name-$host" --add-host "a:$address.1" --add-host "b:$address.2" "$image" >/dev/null
  done
  on_host b hvd-host >"$work/b.txt" 2>&1 & # not into the pipe that the other's output goes to, which would stay open
  on_host a hvd-host timeout 400 "$@" # of which it takes about 60 s on 2 cores; ranks that never meet would hang
}

on_host() { # HOST COMMAND...
  local host=$1
  shift
  ip netns exec "$name-$host" buildah run --hostname "$host" --network host --volume "$work/keys:/keys:ro" "$name-$host" -- "$@"
}

end_hosts() {
  local host
  if [ "${engine:-}" = docker ]; then
    compose down --volumes >/dev/null 2>&1 || true
    return
  fi
  for host in a b; do
    ip netns pids "$name-$host" 2>/dev/null | xargs -r kill 2>/dev/null || true
    sleep 0.2
    ip netns pids "$name-$host" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
    ip netns delete "$name-$host" 2>/dev/null || true
  done
}
