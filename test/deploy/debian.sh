#!/bin/sh
# debian.sh PACKAGE PROGRAM…: prints the folder with the programs: the one on PATH, else Debian's package, unpacked into
# node_modules/.cache. Nothing is installed, so it needs no root.
set -eu
package=$1
shift
on_path=yes
for program in "$@"; do command -v "$program" > /dev/null || on_path=no; done
if [ "$on_path" = yes ]; then
  dirname "$(command -v "$1")"
  exit
fi
cache=$(cd "$(dirname "$0")/../.." && pwd)/node_modules/.cache/$package
if [ ! -x "$cache/usr/bin/$1" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  apt-get download "$package" > log 2>&1 || {
    # Nobody has read the package lists yet, or only root may: our own lists.
    mkdir -p lists/partial archives/partial
    own="-o Dir::State::lists=$work/lists -o Dir::Cache=$work/archives"
    # shellcheck disable=SC2086
    { apt-get $own update && apt-get $own download "$package"; } >> log 2>&1 || { cat log >&2; exit 1; }
  }
  dpkg-deb -x "$package"_*.deb root
  mkdir -p "$(dirname "$cache")"
  # Two runs at the same time: the second one finds it there.
  mv root "$cache" 2> /dev/null || [ -x "$cache/usr/bin/$1" ]
fi
echo "$cache/usr/bin"
