#!/usr/bin/env bash
# Takes the line tables out of the programs: split.sh FROM TO DEBUG PROGRAM...
# TO/PROGRAM is what the image holds; DEBUG/PROGRAM.debug is for debuggers and profilers, which find it by the link that the
# program keeps. OBJCOPY names the objcopy of another architecture.
set -euo pipefail
from=$1 to=$2 debug=$3
shift 3
objcopy=${OBJCOPY:-objcopy}
mkdir -p "$to" "$debug"
for program in "$@"; do
  "$objcopy" --only-keep-debug --compress-debug-sections=zlib "$from/$program" "$debug/$program.debug"
  # The symbol table stays behind as well: a backtrace is read with the .debug file beside it.
  "$objcopy" --strip-all --add-gnu-debuglink="$debug/$program.debug" "$from/$program" "$to/$program"
  chmod 0755 "$to/$program"
  chmod 0644 "$debug/$program.debug"
done
