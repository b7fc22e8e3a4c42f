#!/usr/bin/env bash
# Builds the control plane, or finds it built, and prints the path of the binary.
# It is kept outside the clone under a hash of its sources, so that a second run,
# also from another clone, takes no time. All else goes to stderr.
# usage: ./build.sh [--local]     --local: also copy it to ./controlplane
# JOBS: compilers at once (default 2: each takes up to 1 GiB).
set -euo pipefail
cd "$(dirname "$0")"
sources=$(find . -name '*.go' ! -name '*_test.go' -o -name go.mod -o -name go.sum -o -name build.sh | LC_ALL=C sort)
# shellcheck disable=SC2086
key=$(cat $sources | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll/controlplane-$key
binary=$cache/controlplane
if [ ! -x "$binary" ]; then
  echo "controlplane: building kube-apiserver, scheduler, controller manager, etcd and kwok from source (7 to 10 minutes the first time)" >&2
  # kubectl shows this version; unset, it would read v0.0.0-master.
  version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
  minor=${version#v1.}; minor=${minor%%.*}
  flags="-s -w"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor"
    flags+=" -X $package.gitTreeState=clean -X $package.buildDate=2026-01-01T00:00:00Z"
  done
  mkdir -p "$cache"
  # Whole or not at all, also when two builds run at once.
  CGO_ENABLED=0 go build -p "${JOBS:-2}" -trimpath -ldflags "$flags" -o "$binary.$$" . >&2
  mv "$binary.$$" "$binary"
fi
if [ "${1:-}" = --local ]; then
  cp "$binary" controlplane.tmp && mv controlplane.tmp controlplane
fi
echo "$binary"
