#!/usr/bin/env bash
# Run dp-corpus on a Flink cluster of this machine:
#
#   python -m launch.demo.records --output demo/records.jsonl
#   launch/flink/flink.sh start-cluster.sh
#   launch/flink/flink.sh run --config launch/demo/demo.toml
#   launch/flink/flink.sh stop-cluster.sh
#
# The first line writes invented records, and launch/demo/demo.toml has the settings for them. All commands:
#
#   launch/flink/flink.sh fetch                     download Flink and Beam's job server, 0.5 GB, and name them
#   launch/flink/flink.sh SCRIPT ...                a script of Flink itself: taskmanager.sh, flink, ...
#   launch/flink/flink.sh run FLAGS [-- OPTIONS]    dp-corpus generate FLAGS on the cluster, and options of Beam
#
# FLINK_CONF_DIR names settings of Flink in place of launch/flink/conf. PYTHON names the Python of workers and of
# run, which must have this project's requirements; the default is that of .venv.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python="${PYTHON:-$root/.venv/bin/python}"

if [[ $# -eq 0 || $1 == --help || $1 == -h ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit
fi
find='import importlib.util, os, sys; assert importlib.util.find_spec("apache_beam"); print(os.path.dirname(sys.executable))'
if ! folder="$("$python" -c "$find" 2> /dev/null)"; then
  echo "Error: Expected a Python with this project's requirements, got PYTHON=$python." \
    "Run 'make test' once, or set PYTHON." >&2
  exit 2
fi
# Task managers inherit both, and worker.py begins with `python`.
export PATH="$folder:$PATH" PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
fetched="$(python -m launch.flink.fetch)"
flink="${fetched%%$'\n'*}" jar="${fetched##*$'\n'}"

state="${XDG_STATE_HOME:-$HOME/.local/state}/dp-corpus/flink"
mkdir -p "$state/conf" "$state/log" "$state/tmp"
chmod 700 "$state"
export FLINK_LOG_DIR="$state/log" FLINK_PID_DIR="$state"
if [[ -z ${FLINK_CONF_DIR:-} ]]; then
  export FLINK_CONF_DIR="$state/conf"
  cp "$flink"/conf/* "$FLINK_CONF_DIR"
  cp "$root"/launch/flink/conf/* "$FLINK_CONF_DIR"
  # Shuffled records may spill into it, and its owner alone may enter.
  echo "io.tmp.dirs: $state/tmp" >> "$FLINK_CONF_DIR/config.yaml"
fi

case $1 in
  fetch) echo "$fetched" ;;
  run)
    shift
    flags=()
    while [[ $# -gt 0 && $1 != -- ]]; do
      flags+=("$1")
      shift
    done
    # An idle worker is kept for 3 seconds; otherwise every step would start one of its own.
    # No cd: the user's paths are relative to the user's folder.
    exec python -m pipeline.main generate ${flags[@]+"${flags[@]}"} --runner FlinkRunner -- \
      --flink_master="localhost:$(sed -n 's/^rest.port: *//p' "$FLINK_CONF_DIR/config.yaml")" \
      --flink_version=1.19 --flink_job_server_jar="$jar" \
      --environment_type=PROCESS --environment_config="{\"command\": \"$root/launch/flink/worker.py\"}" \
      --environment_cache_millis=3000 --parallelism="$(grep -c . "$FLINK_CONF_DIR/workers")" "${@:2}"
    ;;
  *)
    if [[ ! -f $flink/bin/$1 ]]; then
      echo "Error: Expected fetch, run or a script of Flink, got $1. The scripts are in $flink/bin." >&2
      exit 2
    fi
    exec bash "$flink/bin/$1" "${@:2}"
    ;;
esac
