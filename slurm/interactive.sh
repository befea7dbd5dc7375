#!/bin/bash
# interactive.sh [--machine NAME] COMMAND [OPTIONS...]: lockstep COMMAND on all ranks of an allocation, from its shell.
#   salloc --nodes=2 --ntasks-per-node=4 --cpus-per-task=8
#   slurm/interactive.sh train --model resnet50 --data shards/ --run-dir runs/try
: "${LOCKSTEP_SLURM:=$(cd "$(dirname "$0")" && pwd)}"
# shellcheck source-path=SCRIPTDIR source=job.sh
source "$LOCKSTEP_SLURM/job.sh" || exit 66
trap - "${signals[@]}" # no checkpoint on a signal here
machine=${LOCKSTEP_MACHINE:-generic}
if [ "${1:-}" = --machine ]; then
  machine=${2:-}
  shift 2 || give_up 64 "--machine needs a name"
fi
[ $# -gt 0 ] || { sed -n 2,4p "$0" >&2; exit 64; }
[ "$job" != none ] ||
  give_up 64 "no allocation here (SLURM_JOB_ID is not set); start this in the shell that salloc --nodes=2 gives"
load_machine "$machine"
# In the terminal's foreground: the launcher forwards interrupts to the ranks.
launch_line "${lockstep[@]}" "$@"
exec "${line[@]}"
