#!/usr/bin/env bash
# Builds the peer, or finds it built, and prints the path of the binary. It is kept outside the clone under a hash of its
# sources, so that a second run, also from another clone, takes no time. All else goes to stderr.
set -euo pipefail
cd "$(dirname "$0")"
sources=$(find . -name '*.go' ! -name '*_test.go' -o -name go.mod -o -name go.sum -o -name build.sh | LC_ALL=C sort)
# shellcheck disable=SC2086
key=$(cat $sources | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll/karpenter-$key
binary=$cache/karpenter
if [ ! -x "$binary" ]; then
  echo "karpenter: building Karpenter's scheduler from its Go module (a minute or more the first time)" >&2
  mkdir -p "$cache"
  # Whole or not at all, also when two builds run at once.
  CGO_ENABLED=0 go build -p "${JOBS:-2}" -trimpath -ldflags "-s -w" -o "$binary.$$" . >&2
  mv "$binary.$$" "$binary"
fi
echo "$binary"
