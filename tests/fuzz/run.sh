#!/bin/sh
# Looks for inputs that break a property, by libFuzzer: run.sh [--minutes N] [--keep] [quantity|requirements|manifests|wire ...]
# With --keep, the shortest inputs that reach all that was reached are put into corpus/.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
minutes=10 keep=no targets=
while [ $# -gt 0 ]; do
  case "$1" in
    --minutes) minutes=$2; shift ;;
    --keep) keep=yes ;;
    quantity|requirements|manifests|wire) targets="$targets $1" ;;
    *) sed -n 2,3p "$0" >&2; exit 2 ;;
  esac
  shift
done
target=${CARGO_TARGET_DIR:-$here/../../target}

# unpack ARCHIVE FOLDER: a line of the archive is an input's name and its bytes in base64.
unpack() {
  [ ! -f "$1" ] || while read -r input bytes; do printf %s "$bytes" | base64 -d > "$2/$input"; done < "$1"
}
# pack FOLDER ARCHIVE
pack() {
  (cd "$1" && for input in *; do printf '%s %s\n' "$input" "$(base64 -w 0 "$input")"; done | LC_ALL=C sort) > "$2"
}

(cd "$here/../.." && RUSTC_WORKSPACE_WRAPPER="$here/instrument.sh" CARGO_TARGET_DIR="$target" \
  cargo build --locked --package plimsoll-fuzz --features libfuzzer --bins)

for name in ${targets:-quantity requirements manifests wire}; do
  program=$target/debug/fuzz-$name
  work=$target/fuzz/$name
  kept=$work/kept
  rm -rf "$kept"
  mkdir -p "$work/corpus" "$work/seeds" "$work/found" "$kept" "$work/regressions"
  unpack "$here/corpus/$name.base64" "$kept"
  [ ! -d "$here/regressions/$name" ] || cp "$here/regressions/$name"/* "$work/regressions"
  if [ "$name" = manifests ]; then
    # Every scenario as it is, and as one whose values are changed: the first two bytes say how (src/manifests.rs).
    find "$here/../scenarios" -name '*.yaml' | while read -r file; do
      seed=$(echo "${file#"$here"/../scenarios/}" | tr / -)
      cp "$file" "$work/seeds/$seed"
      { printf '\0\0'; cat "$file"; } > "$work/seeds/changed-$seed"
    done
  fi
  dictionary=$here/dictionaries/$name.dict
  # What takes longer than 10 s or more than 2 GiB is a finding; what is worth keeping is short enough to be read.
  set -- "$work/corpus" "$kept" "$work/regressions" "$work/seeds"
  [ ! -f "$dictionary" ] || set -- -dict="$dictionary" "$@"
  "$program" -max_total_time=$((minutes * 60)) -timeout=10 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="$work/found/" "$@"
  if [ "$keep" = yes ]; then
    rm -rf "$work/merged"
    mkdir "$work/merged"
    "$program" -set_cover_merge=1 -max_len=4096 "$work/merged" "$kept" "$work/regressions" "$work/corpus" "$work/seeds"
    # The shortest first, as long as there is room (tests/corpus.rs); what is there stays, it may have broken something once.
    room=$((96 * 1024 - $(cat "$kept"/* "$work/regressions"/* 2>/dev/null | wc -c)))
    find "$work/merged" -type f -printf '%s %f\n' | sort -n | while read -r size file; do
      [ "$size" -le "$room" ] || break
      [ -e "$kept/$file" ] || { cp "$work/merged/$file" "$kept/$file"; room=$((room - size)); }
    done
    pack "$kept" "$here/corpus/$name.base64"
  fi
done
