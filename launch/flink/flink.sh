#!/usr/bin/env bash
# A Flink cluster on this machine, and the job on it: `launch/flink/flink.sh --help` lists the commands.
# The Python of .venv, or the one that $PYTHON names; it needs this project's requirements.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python="${PYTHON:-$root/.venv/bin/python}"
if ! "$python" -c 'import apache_beam' 2>/dev/null; then
  echo "Expected a Python with this project's requirements, got PYTHON=$python." \
    "Run 'make test' once, or set PYTHON." >&2
  exit 2
fi
# Paths that the user gives count from where the user is.
exec env PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" "$python" -m launch.flink.main "$@"
