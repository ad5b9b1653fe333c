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
mkdir -p ~/.ssh
chmod 700 ~/.ssh
install -m 600 "$key" ~/.ssh/id_hosts
ssh-keygen -y -f ~/.ssh/id_hosts >~/.ssh/authorized_keys
sed 's/^/* /' ~/.ssh/authorized_keys >~/.ssh/known_hosts

[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
/usr/sbin/sshd -f /dev/null -p 2222 -E ~/.ssh/sshd.log -o HostKey="$HOME/.ssh/id_hosts" -o PidFile=none \
  -o AllowUsers="$(id -un)" -o AuthorizedKeysFile=.ssh/authorized_keys -o PasswordAuthentication=no \
  -o KbdInteractiveAuthentication=no -o UsePAM=no -o MaxStartups=100 -o SetEnv="PATH=$PATH"

[ $# -gt 0 ] || set -- sleep infinity
exec "$@"
