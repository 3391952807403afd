#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves docker/Dockerfile where there is no engine: each FROM is an empty Debian 12, each COPY and RUN
# is done in it, and the last stage then serves as a container would: its own user, a read-only root,
# no capability, /run/batchd the only place to write. Its health check and a trainer of this
# machine look at it. By hand and as root, since it takes about 15 minutes and 5 GB; the summary goes to
# tests/docker_root.txt. PYTHON=… is one that has the client.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tests/empty_debian.sh
. tests/empty_debian.sh

python=${PYTHON:-build/test-venv/bin/python}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/batchd-docker-XXXXXX")
stage=0
root=
declare -A stages=()
folder=/
user=
entrypoint=()
command=()
health=()
daemon=
cleanup() {
  if [ -n "$daemon" ]; then kill "$daemon" 2> /dev/null || true; wait "$daemon" || true; fi
  if mountpoint -q "$root"; then umount -l "$root"; fi
  for each in "$work"/empty "$work"/stage*; do
    if ! remove_root "$each"; then return; fi
  done
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT

say() { printf '%5d s  %s\n' "$SECONDS" "$*" | tee -a "$work/summary"; }
# The words of a JSON list, or of a plain line.
words() {
  python3 -c 'import json, sys; text = sys.argv[1]
print("\n".join(json.loads(text) if text.startswith("[") else text.split()))' "$1"
}
# Every instruction that the file uses; another one stops the script.
instruct() {
  local name=$1 rest=$2 list from
  case $name in
    FROM)
      [[ $rest =~ ^debian:12(-slim)?(\ AS\ ([a-z]+))?$ ]] || { echo "FROM $rest?" >&2; exit 1; }
      stage=$((stage + 1))
      root=$work/stage$stage
      folder=/
      if [ -n "${BASH_REMATCH[3]}" ]; then stages[${BASH_REMATCH[3]}]=$root; fi
      cp -a "$work/empty" "$root"
      mount_root "$root"
      ;;
    WORKDIR) folder=$rest; mkdir -p "$root$folder" ;;
    COPY)
      from=$PWD
      if [[ $rest =~ ^--from=([a-z]+)\ (.*)$ ]]; then
        from=${stages[${BASH_REMATCH[1]}]}
        rest=${BASH_REMATCH[2]}
      fi
      mapfile -t list < <(words "$rest")
      copy "$from" "${list[@]}"
      ;;
    RUN)
      in_root "$root" sh -c "cd $folder && $rest" > "$work/run.log" 2>&1 || {
        tail -40 "$work/run.log" >&2
        exit 1
      }
      ;;
    USER) user=$rest ;;
    EXPOSE) ;;
    HEALTHCHECK) mapfile -t health < <(words "${rest#*CMD }") ;;
    ENTRYPOINT) mapfile -t entrypoint < <(words "$rest") ;;
    CMD) mapfile -t command < <(words "$rest") ;;
    *) echo "$name: this script does not know that instruction" >&2; exit 1 ;;
  esac
}
# As COPY does: a folder's content, or files into a folder; a relative place is below WORKDIR.
copy() {
  local from=$1 to=${!#} source
  case $to in /*) ;; *) to=${folder%/}/$to ;; esac
  case $to in */) mkdir -p "$root$to" ;; *) mkdir -p "$root$(dirname "$to")" ;; esac
  for source in "${@:2:$#-2}"; do
    if [ -d "$from/$source" ]; then cp -rT "$from/$source" "$root$to"; else cp "$from/$source" "$root$to"; fi
  done
}

make_root "$work/empty" > "$work/debootstrap.log" 2>&1
unmount_root "$work/empty"
say "debootstrap"
while IFS= read -r line; do
  instruct "${line%% *}" "${line#* }"
  say "$(cut -c1-90 <<< "$line" | tr -s ' ')"
done < <(sed -e '/^#/d' -e ':more' -e '/\\$/{N;s/\\\n//;bmore' -e '}' -e '/^ *$/d' docker/Dockerfile)

# The container.
size=$(du -smx "$root" | cut -f1)
mkdir "$work/data" "$work/socket"
in_root "$root" batchd demo --make-images /tmp/images --count 200 > /dev/null
mv "$root/tmp/images" "$work/data/train"
chown "$user" "$work/socket"  # a named volume has the owner of the folder in the image
mount --rbind "$root" "$root"
mount --bind "$work/data" "$root/data"
mount --bind "$work/socket" "$root/run/batchd"
mount -o remount,bind,ro "$root/data"
mount -o remount,bind,ro "$root"
container=(env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot "$root"
  setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups --no-new-privs
  --inh-caps=-all --bounding-set=-all)
if touch "$root/usr/x" 2> /dev/null; then echo "the root can be written" >&2; exit 1; fi
"${container[@]}" "${entrypoint[@]}" "${command[@]}" 2> "$work/log" &
daemon=$!
for _ in $(seq 100); do
  if "${container[@]}" "${health[@]}" > "$work/health" 2>&1; then break; fi
  kill -0 "$daemon" || { cat "$work/log" >&2; exit 1; }
  sleep 0.1
done
say "${health[*]}: $(cat "$work/health")"
say "runs with $(sed -n 's/^\(Uid\|Gid\|CapEff\|CapBnd\|NoNewPrivs\):\t\([^\t]*\).*/\1 \2/p' \
  "/proc/$daemon/status" | paste -sd ' ')"
say "$("$python" - "$work/socket/sock" <<'END'
import sys, batchd
from batchd import transforms as T
with batchd.Loader(batchd.ImageFolder("/data/train"),
                   {"image": [T.DecodeImage(), T.RandomResizedCrop(64)]}, batch_size=50,
                   address=f"unix:{sys.argv[1]}") as loader:
    print("a trainer outside reads", sum(len(b["image"].numpy()) for b in loader), "images")
END
)"
kill -TERM "$daemon"
wait "$daemon"
daemon=
say "SIGTERM: exit code 0; left in /run/batchd: $(find "$work/socket" -type s | wc -l) sockets"
ccache=
if [ -n "${CCACHE_DIR:-}" ]; then ccache=", with a compiler cache from outside"; fi
{
  echo "docker/Dockerfile of $(git rev-parse --short HEAD) in roots of debootstrap, $(date +%F)," \
    "$(nproc) cores$ccache; the last stage has $size MB"
  echo
  cat "$work/summary"
} > tests/docker_root.txt
