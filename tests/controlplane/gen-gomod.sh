#!/usr/bin/env bash
# Writes go.mod and go.sum for one Kubernetes version: every k8s.io/* staging
# module that k8s.io/kubernetes requires as v0.0.0 becomes its published v0.X.Y.
# usage: ./gen-gomod.sh v1.36.3 [KWOK_VERSION]     needs jq
set -euo pipefail
kubernetes=${1:?usage: gen-gomod.sh v1.X.Y [KWOK_VERSION]}
kwok=${2:-v0.8.0}
cd "$(dirname "$0")"
staging=v0.${kubernetes#v1.}
# From /: inside the module, go would resolve it against the go.mod being replaced.
source=$(cd / && go mod download -json "k8s.io/kubernetes@$kubernetes" | jq -r .GoMod)
mod=$(go mod edit -json "$source")
names=$(jq -r '.Replace[] | select(.New.Path | startswith("./staging/")) | .Old.Path' <<<"$mod")
etcd=$(jq -r '.Require[] | select(.Path == "go.etcd.io/etcd/client/v3") | .Version' <<<"$mod")
{
  echo "module controlplane"
  echo
  echo "go $(jq -r .Go <<<"$mod")"
  echo
  jq -r '.Godebug // [] | .[] | "godebug \(.Key)=\(.Value)"' <<<"$mod"
  echo
  echo "require ("
  echo "	go.etcd.io/etcd/server/v3 $etcd"
  echo "	k8s.io/component-base $staging"
  echo "	k8s.io/kubernetes $kubernetes"
  echo "	sigs.k8s.io/kwok $kwok"
  echo ")"
  echo
  echo "replace ("
  for name in $names; do echo "	$name => $name $staging"; done
  echo ")"
} >go.mod
rm -f go.sum
go mod tidy
