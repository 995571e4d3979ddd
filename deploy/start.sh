#!/usr/bin/env bash
# Begins a run on a Ray cluster, or goes on with it: start.sh RECIPE RUN ADDRESS [section.key=value ...]
# RUN must lie on storage that every node sees. Changes to the recipe count only when the run begins.
set -euo pipefail

recipe=${1:?say which recipe} run=${2:?say which run directory} address=${3:?say which Ray cluster}
shift 3
if compgen -G "$run/checkpoints/step_*" > /dev/null; then
    exec prorl resume "$run" --address "$address"
fi
exec prorl train "$recipe" "$@" --run "$run" --backend ray --address "$address"
