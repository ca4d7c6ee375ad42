#!/bin/sh
# Prints the folder with promtool and prometheus: the one on PATH, else Debian's package, unpacked into node_modules/.cache.
set -eu
if command -v promtool > /dev/null && command -v prometheus > /dev/null; then
  dirname "$(command -v promtool)"
  exit
fi
cache=$(cd "$(dirname "$0")/../.." && pwd)/node_modules/.cache/prometheus
if [ ! -x "$cache/usr/bin/promtool" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  apt-get download prometheus > log 2>&1 || {
    # Nobody has read the package lists yet, or only root may: our own lists.
    mkdir -p lists/partial archives/partial
    own="-o Dir::State::lists=$work/lists -o Dir::Cache=$work/archives"
    # shellcheck disable=SC2086
    { apt-get $own update && apt-get $own download prometheus; } >> log 2>&1 || { cat log >&2; exit 1; }
  }
  dpkg-deb -x prometheus_*.deb root
  mkdir -p "$(dirname "$cache")"
  # Two runs at the same time: the second one finds it there.
  mv root "$cache" 2> /dev/null || [ -x "$cache/usr/bin/promtool" ]
fi
echo "$cache/usr/bin"
