#!/bin/sh
# Stands before rustc (RUSTC_WORKSPACE_WRAPPER) for the workspace's own crates: counts edges and traces comparisons for libFuzzer.
# What is run while building, such as build scripts, cannot be instrumented: there is no libFuzzer in it.
for argument in "$@"; do
  case "$argument" in
    build_script_*|proc-macro|-) exec "$@" ;;
  esac
done
exec "$@" --cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
  -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
  -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares \
  -Cllvm-args=-simplifycfg-branch-fold-threshold=0
