#!/usr/bin/env bash
# Makes the virtual environment with HiGHS, or finds it made, and prints its path.
# It is kept outside the clone under a hash of what is pinned. All else goes to stderr.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python3}
key=$({ "$python" --version; cat requirements.txt; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll
venv=$cache/exact-$key
if [ ! -e "$venv/.complete" ]; then
  echo "exact: installing $(sed -n 's/^highspy==/HiGHS /p' requirements.txt) into a virtual environment" >&2
  rm -rf "$venv"
  mkdir -p "$cache"
  "$python" -m venv "$venv" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt >&2
  touch "$venv/.complete"
fi
echo "$venv"
