#!/usr/bin/env bash
# Run dp-corpus on Dataflow; --dry-run shows the command and does not run it:
#
#   launch/dataflow/dataflow.sh nvidia-l4 --dry-run --project my-project \
#       --region us-central1 --image images.example.org/dp-corpus:1 \
#       --temp-location gs://my-bucket/tmp -- \
#       --config launch/demo/gemma.toml \
#       --input gs://my-bucket/records.jsonl --output gs://my-bucket/corpus
#
# All commands:
#
#   launch/dataflow/dataflow.sh image IMAGE JAX [WEIGHTS]    build and push the worker image: cpu, cuda12 or tpu
#   launch/dataflow/dataflow.sh template IMAGE TEMPLATE      write the Flex Template, gs://BUCKET/NAME.json
#   launch/dataflow/dataflow.sh PROFILE ... -- FLAGS         start a run from here and wait for it
#   launch/dataflow/dataflow.sh PROFILE --template TEMPLATE --job-name NAME ... -- FLAGS    start it from the template
#   launch/dataflow/dataflow.sh metadata                     write launch/dataflow/template_metadata.json again
#
# PROFILE is nvidia-l4, nvidia-a100 or tpu-v5e; PROFILE --help lists the flags of a run.
# --dry-run after PROFILE shows the command of a run; DRY_RUN=1 shows every other command.
# PYTHON names the Python that dp-corpus is installed in. docs/deploying/dataflow.md says what must be there before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PYTHON=${PYTHON:-python}
PROFILES='nvidia-l4 nvidia-a100 nvidia-a100-80gb nvidia-h100 tpu-v5e tpu-v5p tpu-v6e'

fail() {
  echo "Error: $*" >&2
  exit 2
}

show_or_run() {
  if [[ ${DRY_RUN:-} == 1 ]]; then
    printf '%q ' "$@"
    echo
  else
    "$@"
  fi
}

need() {
  command -v "$1" > /dev/null || fail "Expected $1 on the PATH, got none. Install it: $2"
}

image() {
  [[ $# -eq 2 || $# -eq 3 ]] || fail "Expected IMAGE JAX [WEIGHTS], got $# arguments."
  local image=$1 jax=$2 weights=${3:-}
  case $jax in
    cpu | cuda12 | tpu) ;;
    *) fail "Expected JAX to be cpu, cuda12 or tpu, got JAX=$jax." ;;
  esac
  local build=(docker build --platform linux/amd64 --file launch/image/Dockerfile --target dataflow
    --build-arg "JAX=$jax" --tag "$image")
  if [[ -n $weights ]]; then
    [[ -d $weights ]] || fail "Expected a folder of weights, got WEIGHTS=$weights, which is none."
    build+=(--build-context "weights=$weights")
  fi
  [[ ${DRY_RUN:-} == 1 ]] || need docker 'https://docs.docker.com/engine/install'
  # BuildKit reads launch/image/Dockerfile.dockerignore and knows build contexts; the older builder does not.
  export DOCKER_BUILDKIT=1
  show_or_run "${build[@]}" .
  show_or_run docker push "$image"
}

template() {
  [[ $# -eq 2 ]] || fail "Expected IMAGE TEMPLATE, got $# arguments."
  [[ $2 == gs://*.json ]] || fail "Expected TEMPLATE to be gs://BUCKET/NAME.json, got TEMPLATE=$2."
  [[ ${DRY_RUN:-} == 1 ]] || need gcloud 'https://cloud.google.com/sdk/docs/install'
  show_or_run gcloud dataflow flex-template build "$2" --image="$1" --sdk-language=PYTHON \
    --metadata-file=launch/dataflow/template_metadata.json
}

metadata() {
  [[ $# -eq 0 ]] || fail "Expected no arguments, got $#."
  local made
  made=$("$PYTHON" -m launch.dataflow.main metadata)
  printf '%s\n' "$made" > launch/dataflow/template_metadata.json
}

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' launch/dataflow/dataflow.sh
}

[[ $# -ge 1 ]] || { usage >&2; exit 2; }
command=$1
shift
case $command in
  --help | -h) usage ;;
  image | template | metadata) "$command" "$@" ;;
  *)
    [[ " $PROFILES " == *" $command "* ]] || { usage >&2; exit 2; }
    [[ ${DRY_RUN:-} != 1 ]] || set -- --dry-run "$@"
    exec "$PYTHON" -m launch.dataflow.main run "$command" "$@"
    ;;
esac
