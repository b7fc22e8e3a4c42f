#!/usr/bin/env bash
# Creates the virtual environment of validate.py unless it exists, and prints its path.
# It is stored outside the clone, under a hash of the pinned versions. All other output goes to stderr.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python3}
key=$({ "$python" --version; cat requirements.txt; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll
venv=$cache/venv-sbom-$key
if [ ! -e "$venv/.complete" ]; then
  echo "image: installing the validator of CycloneDX into a virtual environment" >&2
  mkdir -p "$cache"
  # Concurrent first runs wait for each other.
  exec 9>"$cache/venv.lock"
  flock 9
  if [ ! -e "$venv/.complete" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv" >&2
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r requirements.txt >&2
    touch "$venv/.complete"
  fi
fi
echo "$venv"
