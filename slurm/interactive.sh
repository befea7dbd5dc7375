#!/bin/bash
# interactive.sh [--machine NAME] COMMAND [OPTIONS...]: lockstep COMMAND on all ranks of an allocation, from its shell.
#   salloc --nodes=2 --ntasks-per-node=4 --cpus-per-task=8
#   slurm/interactive.sh train --model resnet50 --data shards/ --run-dir runs/try
: "${LOCKSTEP_SLURM:=$(dirname "$(readlink -e "$0")")}"
[[ ${LOCKSTEP_SLURM:-} == /* && ! -k $LOCKSTEP_SLURM && -r $LOCKSTEP_SLURM/job.sh ]] || {
  echo "error: no job.sh in LOCKSTEP_SLURM=${LOCKSTEP_SLURM:-} (if unset: beside the submitted script, but not in a directory such as /tmp); module load lockstep, or set it to the absolute path of slurm/" >&2
  exit 66
}
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
