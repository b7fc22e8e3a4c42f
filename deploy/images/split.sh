#!/usr/bin/env bash
# Moves the line tables from the programs to separate files: split.sh FROM TO DEBUG PROGRAM...
# TO/PROGRAM is for the image. DEBUG/PROGRAM.debug is for debuggers and profilers, which find it through a link in the
# program.
# OBJCOPY is the objcopy command for another architecture.
set -euo pipefail
from=$1 to=$2 debug=$3
shift 3
objcopy=${OBJCOPY:-objcopy}
mkdir -p "$to" "$debug"
for program in "$@"; do
  "$objcopy" --only-keep-debug --compress-debug-sections=zlib "$from/$program" "$debug/$program.debug"
  # Also removes the symbol table. The .debug file resolves the addresses of a backtrace.
  "$objcopy" --strip-all --add-gnu-debuglink="$debug/$program.debug" "$from/$program" "$to/$program"
  chmod 0755 "$to/$program"
  chmod 0644 "$debug/$program.debug"
done
