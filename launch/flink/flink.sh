#!/usr/bin/env bash
# A Flink cluster on this machine, and dp-corpus on it: `launch/flink/flink.sh --help` lists the commands.
# It uses the Python of .venv, or the one that $PYTHON names, which must have this project's requirements.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python="${PYTHON:-$root/.venv/bin/python}"
if ! "$python" -c 'import apache_beam' 2>/dev/null; then
  echo "Expected a Python with this project's requirements, got PYTHON=$python." \
    "Run 'make test' once, or set PYTHON." >&2
  exit 2
fi
# No cd: the user's paths are relative to the user's folder.
exec env PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" "$python" -m launch.flink.main "$@"
