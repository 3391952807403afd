#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that deploy/install-deps.sh forgets nothing: makes an empty Debian 12 in a temporary folder,
# puts a clean clone of the tree into it and runs the README's two commands there. By hand and as
# root, since it takes about 40 minutes and 8 GB. The summary goes to tests/fresh_root.txt.
# How packages are reached (sources, proxies, certificates, pip's settings) is taken from this
# machine, at this moment.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v debootstrap > /dev/null || { echo "fresh_root: install debootstrap first" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || { echo "fresh_root: must be root, for chroot" >&2; exit 1; }

summary=$PWD/tests/fresh_root.txt
root=$(mktemp -d "${TMPDIR:-/var/tmp}/batchd-root-XXXXXX")
cleanup() {
  for mount in proc dev/shm dev; do
    if mountpoint -q "$root/$mount"; then umount -l "$root/$mount"; fi
  done
  rm -rf --one-file-system "$root"
}
trap cleanup EXIT

# shellcheck disable=SC2016  # apt-get expands it
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
  grep -v security | head -1)
debootstrap --variant=minbase --include=ca-certificates bookworm "$root" \
  "${mirror:-http://deb.debian.org/debian}"

# The way to the registries.
rm -rf "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d" "$root/etc/apt/apt.conf.d"
for path in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/apt.conf \
  /etc/apt/auth.conf.d /usr/share/keyrings /etc/ssl/certs /usr/local/share/ca-certificates \
  /etc/pip.conf /root/.config/pip /root/.pip /etc/resolv.conf /etc/hosts; do
  [ -e "$path" ] || continue
  mkdir -p "$root$(dirname "$path")"
  rm -rf "${root:?}$path"  # what is there may be links, which lead out of the root from here
  cp -aLT "$path" "$root$path"
done
variables=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
while IFS= read -r variable; do variables+=("$variable"); done < <(
  env | grep -iE '^(https?_proxy|no_proxy|PIP_[A-Z_]*|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=' || true)
# A folder of wheels that pip is told of belongs to the way, too.
for links in $(printf '%s\n' "${variables[@]}" | sed -n 's/^PIP_FIND_LINKS=//p'); do
  if [ -d "$links" ]; then mkdir -p "$root$links"; cp -aT "$links" "$root$links"; fi
done

git clone -q . "$root/src/batchd"
if [ -d ../shared ]; then cp -a ../shared "$root/src/shared"; fi
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"

inside() { env -i "${variables[@]}" chroot "$root" bash -c "cd /src/batchd && $1"; }
{
  system=$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release")
  echo "$(git rev-parse --short HEAD), $system, $(nproc) cores"
  for command in "bash deploy/quickstart.sh" "bash tests/run.sh"; do
    start=$SECONDS
    rc=0
    inside "$command" > "$root/log" 2>&1 || rc=$?
    echo
    echo "\$ $command    # $((SECONDS - start)) s, exit code $rc"
    tail -n 30 "$root/log"
  done
} | tee "$summary"
! grep -q 'exit code [1-9]' "$summary"
