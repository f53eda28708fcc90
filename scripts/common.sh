# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the other scripts: paths, and the output of steps.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export TESSERA_CACHE=${TESSERA_CACHE:-${HOME:-/root}/.cache/tessera}
LOGS=${TESSERA_LOGS:-$ROOT/build/logs}

# The compiler cache is keyed by content, so a clone at another path uses it too.
export CCACHE_DIR=${CCACHE_DIR:-$TESSERA_CACHE/ccache}
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-5G}

# Colors only on a terminal.
if [ -t 1 ]; then
  BOLD=$'\033[1m' DIM=$'\033[2m' RED=$'\033[31m' GREEN=$'\033[32m' PLAIN=$'\033[0m'
else
  BOLD='' DIM='' RED='' GREEN='' PLAIN=''
fi

say() { printf '%s\n' "$*"; }
title() { printf '\n%s%s%s\n' "$BOLD" "$*" "$PLAIN"; }

# The last line of a log that is not blank, cut to the width of a terminal.
last_line() { tr '\r' '\n' <"$1" 2>/dev/null | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c1-90 || true; }

# step NAME COMMAND... runs a command with its output in a log of that name. It prints the
# last line of the log every ten seconds, and on failure the step, the end of its log, and the path of the log.
step() {
  local name=$1 log began pid next=10 status=0
  shift
  log=$LOGS/$name.log
  mkdir -p "$LOGS"
  began=$SECONDS
  printf '%-26s' "$name"
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.1
    if [ $((SECONDS - began)) -ge "$next" ]; then
      printf '\n  %s%4d s  %s%s' "$DIM" $((SECONDS - began)) "$(last_line "$log")" "$PLAIN"
      next=$((next + 10))
    fi
  done
  wait "$pid" || status=$?
  [ "$next" -eq 10 ] || printf '\n%-26s' ''
  if [ "$status" -ne 0 ]; then
    printf '%sfailed%s after %d s (exit %d)\n' "$RED" "$PLAIN" $((SECONDS - began)) "$status"
    tail -n 25 "$log" | sed 's/^/    /'
    printf 'The step "%s" failed; its whole log: %s\n' "$name" "$log"
    return "$status"
  fi
  printf '%sok%s  %d s\n' "$GREEN" "$PLAIN" $((SECONDS - began))
}

require_root() {
  [ "$(id -u)" -eq 0 ] || { say "$0 must run as root: it makes namespaces, mounts and cgroups"; exit 1; }
}

# testcluster itself checks whether the cluster runs.
require_testcluster() {
  [ -x "$TESTCLUSTER" ] || { say "no quickstart cluster: run scripts/quickstart" >&2; exit 1; }
}

require_go() {
  command -v go >/dev/null ||
    { say "go is not in PATH: install Go 1.26 or later (https://go.dev/doc/install)"; exit 1; }
}

# install_packages [LIST]: the packages of scripts/packages.txt, or of another list.
install_packages() {
  local missing
  missing=$(sed 's/#.*//' "$ROOT/scripts/${1:-packages.txt}" | xargs -n1 | while read -r package; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done)
  [ -n "$missing" ] || { say "nothing to install"; return 0; }
  say "installing:" $missing
  apt-get update
  # shellcheck disable=SC2086  # a list of words
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}

# Debian's Prometheus, unpacked beside the caches: installing the package would start a server.
PROMETHEUS=$TESSERA_CACHE/prometheus/usr/bin
unpack_prometheus() {
  [ ! -x "$PROMETHEUS/prometheus" ] || { say "nothing to do"; return 0; }
  local folder
  mkdir -p "$TESSERA_CACHE"
  folder=$(mktemp -d "$TESSERA_CACHE/prometheus.XXXXXX")
  (cd "$folder" && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; } && dpkg -x prometheus_*.deb . && rm prometheus_*.deb) ||
    { rm -rf "$folder"; return 1; }
  rm -rf "$TESSERA_CACHE/prometheus"
  mv "$folder" "$TESSERA_CACHE/prometheus"
}

# An archive of the tree has no .git. It may be unpacked inside another repository, whose commit is not ours.
has_commit() { [ -e "$ROOT/.git" ] && git -C "$ROOT" rev-parse --quiet --verify HEAD >/dev/null; }

# The commit that is checked out, as "--version" shows it: "3b21a8b2c1d0"; for a changed tree
# "3b21a8b2c1d0.changed", for an archive "unknown".
current_commit() {
  local commit
  has_commit || { echo unknown; return 0; }
  commit=$(git -C "$ROOT" rev-parse --short=12 HEAD)
  [ -z "$(git -C "$ROOT" status --porcelain)" ] || commit+=.changed
  echo "$commit"
}

# The time of all files of a release (https://reproducible-builds.org/specs/source-date-epoch/). Git gives
# the files of an archive the time of the commit, so there the time of CHANGELOG.md is that time.
source_date() {
  if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
    echo "$SOURCE_DATE_EPOCH"
  elif has_commit; then
    git -C "$ROOT" log -1 --format=%ct
  else
    stat -c %Y "$ROOT/CHANGELOG.md"
  fi
}

# The version of the release that this tree makes.
release_version() { sed -n 's/^project(tessera VERSION \([0-9.]*\) .*/\1/p' "$ROOT/CMakeLists.txt"; }
# The targets that scripts/release packs.
# shellcheck disable=SC2034  # used by scripts that source this file
RELEASE_TARGETS=(tessera sched-replay tessera-agent tessera-scheduler tessera-operator tessera-console tessera-runtime limiter_libraries vectoradd)

# release_preset ARCHITECTURE: the preset of its release build, a cross build if this machine has another.
release_preset() { if [ "$1" = "$(dpkg --print-architecture)" ]; then echo release; else echo "release-$1"; fi; }

# build PRESET [TARGET...]
build() {
  local preset=$1 flags=()
  shift
  cd "$ROOT"
  # Other presets are for tests. With the commit compiled in, they would be linked again for each commit.
  case $preset in
    release*) flags=(-DTESSERA_COMMIT="$(current_commit)" -DTESSERA_IMAGE_TAG="${TESSERA_IMAGE_TAG:-dev}" -DTESSERA_WEB="${TESSERA_WEB:-AUTO}") ;;
  esac
  [ "$preset" != release-arm64 ] || "$ROOT/scripts/sysroot" arm64
  cmake --preset "$preset" "${flags[@]}"
  if [ $# -gt 0 ]; then cmake --build --preset "$preset" --target "$@"; else cmake --build --preset "$preset"; fi
}

TESTCLUSTER=$ROOT/build/bin/testcluster
build_testcluster() {
  mkdir -p "$ROOT/build/bin"
  (cd "$ROOT/tests/cluster" && go build -o "$TESTCLUSTER" ./cmd/testcluster)
}
