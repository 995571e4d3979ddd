#!/usr/bin/env bash
# Trains a recipe on all nodes of a Slurm job. Before the time is up the run saves itself, and the job is queued again to
# go on with it. Submit it from the folder that holds the environment and the runs, on storage that every node sees:
#
#   sbatch --nodes=4 deploy/slurm.sh prorl_v2 cluster.learners=32 cluster.engines=32 cluster.colocate=true \
#       [section.key=value ...]
#
# Options of sbatch stand before the script: --partition, --account, --time. RUN (default: runs/RECIPE), PORT (6379),
# VENV (.venv) and HEAD_IP (of the first node, as the others reach it; default: its first IPv4 address that is not its
# own loop) come from the environment. For a site that refuses --gpus-per-node, say --gres=gpu:8 below in its place.
# A job of less than four hours must ask for less notice, sbatch --signal=B:USR1@1800, or it is told to stop as it begins.
#SBATCH --job-name=prorl
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@7200
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=prorl-%j.log
set -euo pipefail

readonly PREEMPTED=75 # stopped by SIGUSR1, saved: docs/operations.md
readonly UNHEARD=138   # ended by SIGUSR1 before it listened, with nothing to save
recipe=${1:?say which recipe: sbatch deploy/slurm.sh RECIPE}
shift
run=${RUN:-runs/$(basename "$recipe" .yaml)}
here=${SLURM_SUBMIT_DIR:?not in a Slurm job: use sbatch}
cd "$here"
export PATH="$here/${VENV:-.venv}/bin:$PATH"

asked=0 # to save and stop, maybe before there is a trainer to hear it
trap 'asked=1; kill -USR1 "${trainer:-}" 2> /dev/null || true' USR1

# This script runs on the first node, which therefore is the head.
mapfile -t nodes < <(scontrol show hostnames "${SLURM_JOB_NODELIST:?}")
first_address() { # `hostname --ip-address` is often 127.0.1.1, where no other node finds the head
    local ip
    for ip in $(hostname --all-ip-addresses); do
        case $ip in *:* | 127.* | 169.254.*) ;; *) echo "$ip" && return ;; esac
    done
}
ip=${HEAD_IP:-$(first_address)}
if [[ -z $ip ]]; then
    echo "${nodes[0]} has no IPv4 address that other nodes could reach: set HEAD_IP" >&2
    exit 1
fi
address=$ip:${PORT:-6379}
workers=$((${#nodes[@]} - 1))

requeue() {
    scontrol requeue "${SLURM_JOB_ID:?}"
    exit "$PREEMPTED"
}

# Ray asks for a token as soon as an earlier run left one in the home directory, and its commands do not agree on it.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od --address-radix=n --read-bytes=32 --format=x1 /dev/urandom | tr --delete ' \n')
export RAY_AUTH_TOKEN

srun --overlap --cpu-bind=none --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" \
    ray start --head --node-ip-address="$ip" --port="${PORT:-6379}" --disable-usage-stats --block &
head=$!
tries=0
until ray health-check --address "$address" 2> /dev/null; do
    kill -0 "$head" 2> /dev/null || { echo "Ray did not start on ${nodes[0]}: see above" >&2 && exit 1; }
    ((asked == 0)) || requeue
    if ((++tries > 150)); then
        echo "Ray on ${nodes[0]} does not answer at $address: see below, or set HEAD_IP" >&2
        ray health-check --address "$address"
    fi
    sleep 2
done
if ((workers > 0)); then
    srun --overlap --cpu-bind=none --nodes="$workers" --ntasks="$workers" --exclude="${nodes[0]}" \
        bash -c "for try in 1 2 3; do ray start --address=$address --disable-usage-stats --block; sleep 5; done" &
fi
python - "$address" "${#nodes[@]}" << 'WAIT'
import sys, time
import ray

ray.init(address=sys.argv[1], log_to_driver=False)
deadline = time.monotonic() + 600
while (alive := sum(node["Alive"] for node in ray.nodes())) < int(sys.argv[2]):
    if time.monotonic() > deadline:
        sys.exit(
            f"only {alive} of {sys.argv[2]} nodes joined the Ray cluster at {sys.argv[1]} in ten minutes: "
            "check that the nodes reach that address, or set HEAD_IP"
        )
    time.sleep(2)
WAIT

((asked == 0)) || requeue
deploy/start.sh "$recipe" "$run" "$address" "$@" &
trainer=$!
while kill -0 "$trainer" 2> /dev/null; do # a trapped signal ends `wait` early
    wait "$trainer" || true
done
status=0
wait "$trainer" || status=$?
if ((status == PREEMPTED || (asked && status == UNHEARD))); then
    requeue
fi
exit "$status"
