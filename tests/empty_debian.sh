# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# For scripts that prove things in an empty Debian 12, to be sourced: `make_root FOLDER`, then
# `in_root FOLDER COMMAND`, at last `remove_root FOLDER`. As root, with debootstrap. How packages are
# reached (sources, proxies, certificates, pip's settings) is taken from this machine, at this moment.
# A compiler cache that CCACHE_DIR names is used there too; headers and libraries are still needed.

command -v debootstrap > /dev/null || { echo "$0: install debootstrap first" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || { echo "$0: must be root, for chroot" >&2; exit 1; }

root_variables=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  LANG=C.UTF-8)
while IFS= read -r variable; do root_variables+=("$variable"); done < <(
  env | grep -iE '^(https?_proxy|no_proxy|PIP_[A-Z_]*|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=' || true)
if [ -n "${CCACHE_DIR:-}" ]; then
  root_variables+=(CCACHE_DIR=/ccache CCACHE_BASEDIR=/src CCACHE_NOHASHDIR=1
    "CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-}")
fi

make_root() {
  local root=$1 mirror path links
  # shellcheck disable=SC2016  # apt-get expands it
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    grep -v security | head -1)
  debootstrap --variant=minbase --include=ca-certificates bookworm "$root" \
    "${mirror:-http://deb.debian.org/debian}"
  chmod 755 "$root"  # other users' way to everything in it

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
  # A folder of wheels that pip is told of belongs to the way, too.
  for links in $(printf '%s\n' "${root_variables[@]}" | sed -n 's/^PIP_FIND_LINKS=//p'); do
    if [ -d "$links" ]; then mkdir -p "$root$links"; cp -aT "$links" "$root$links"; fi
  done
  mount_root "$root"
}

mount_root() {
  local root=$1
  mount --bind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/dev/shm"
  mount -t proc proc "$root/proc"
  if [ -n "${CCACHE_DIR:-}" ]; then
    mkdir -p "$root/ccache"
    mount --bind "$CCACHE_DIR" "$root/ccache"
  fi
}

unmount_root() {
  local mount
  for mount in ccache proc dev/shm dev; do
    if mountpoint -q "$1/$mount"; then umount -l "$1/$mount"; fi
  done
}

in_root() {
  local root=$1
  shift
  env -i "${root_variables[@]}" chroot "$root" "$@"
}

# Only what has no mount in it any more: a compiler cache may be on the same file system.
remove_root() {
  unmount_root "$1"
  if grep -qF " $1/" /proc/self/mounts; then
    echo "$0: there are still mounts below $1: not removed" >&2
    return 1
  fi
  rm -rf --one-file-system "$1"
}
