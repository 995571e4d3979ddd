#!/usr/bin/env bash
# Begins a run on a Ray cluster, or goes on with it: start.sh RECIPE RUN ADDRESS [section.key=value ...]
# RUN must lie on storage that every node sees. Before a run begins the doctor looks at the cluster; whatever it
# finds, the run begins. One that goes on takes the settings that a resume may change, those of cluster, save,
# deadlines, guards, log and workers; the others count only when it begins.
set -euo pipefail

recipe=${1:?say which recipe} run=${2:?say which run directory} address=${3:?say which Ray cluster}
shift 3
where=(--backend ray --address "$address")
if compgen -G "$run/checkpoints/step_*" > /dev/null; then
    care=()
    for setting in "$@"; do
        case $setting in cluster.* | save.* | deadlines.* | guards.* | log=* | workers=*) care+=("$setting") ;; esac
    done
    exec prorl resume "$run" "${where[@]}" "${care[@]}"
fi
prorl doctor "${where[@]}" --run "$run" --recipe "$recipe" "$@" ||
    echo "prorl doctor found what may not fit (above); the run begins all the same" >&2
exec prorl train "$recipe" "$@" --run "$run" "${where[@]}"
