#!/usr/bin/env bash
# Makes a container one of several hosts: starts an ssh server of the user who runs this, on port 2222, then the command;
# without one, waits.
#
#   hvd-host [COMMAND...]
#
#   HVD_KEY    the private key that all hosts share (default: /keys/id_ed25519): whoever holds it may log in, and is who it says
#
# There is none in the image. Make it once: ssh-keygen -q -t ed25519 -N "" -f /keys/id_ed25519
set -euo pipefail
key=${HVD_KEY:-/keys/id_ed25519}

if [ ! -r "$key" ]; then
  echo "error: $(id -un) cannot read the key $key. Give all hosts the same: ssh-keygen -q -t ed25519 -N '' -f $key" >&2
  exit 1
fi
own=.hvd-host # below the home, which may be one that other hosts share, with keys in ~/.ssh that are the user's
mkdir -p ~/$own
chmod 700 ~/$own
install -m 600 "$key" ~/$own/key
ssh-keygen -y -f ~/$own/key >~/$own/authorized_keys
sed 's/^/* /' ~/$own/authorized_keys >~/$own/known_hosts

[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
/usr/sbin/sshd -f /dev/null -p 2222 -E "$HOME/$own/sshd.log" -o HostKey="$HOME/$own/key" -o PidFile=none \
  -o AllowUsers="$(id -un)" -o AuthorizedKeysFile=$own/authorized_keys -o PasswordAuthentication=no \
  -o KbdInteractiveAuthentication=no -o UsePAM=no -o MaxStartups=100 -o SetEnv="PATH=$PATH"

[ $# -gt 0 ] || set -- sleep infinity
exec "$@"
