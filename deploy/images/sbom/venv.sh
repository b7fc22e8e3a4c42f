#!/usr/bin/env bash
# Makes the virtual environment of validate.py, or finds it made, and prints its path.
# It is kept outside the clone under a hash of what is pinned. All else goes to stderr.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python3}
key=$({ "$python" --version; cat requirements.txt; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll
venv=$cache/venv-sbom-$key
if [ ! -e "$venv/.complete" ]; then
  echo "image: installing the validator of CycloneDX into a virtual environment" >&2
  mkdir -p "$cache"
  # Two first runs at once take turns.
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
