#!/bin/bash
# interactive.sh [--machine NAME] COMMAND [OPTIONS...]: lockstep COMMAND on all ranks of an allocation, from its shell.
#   salloc --nodes=2 --ntasks-per-node=4 --cpus-per-task=8
#   slurm/interactive.sh train --model resnet50 --data shards/ --run-dir runs/try
found=$(env readlink -e "$0") found=${found%/*}
[[ -n $found && ! -k $found && -r $found/schedulers/slurm.sh ]] || found=${LOCKSTEP_SLURM:-}
[[ $found == /* && ! -k $found && -r $found/schedulers/slurm.sh ]] || { echo "error: no job.sh beside '$0' or in LOCKSTEP_SLURM=${LOCKSTEP_SLURM:-} (directories such as /tmp do not count); module load lockstep, or set LOCKSTEP_SLURM to the absolute path of slurm/" >&2; exit 66; }
. "$found/job.sh"
interactive=1 name=
if [ "${1:-}" = --machine ]; then
  name=${2:-}
  shift 2 || give_up 64 "--machine needs a name"
fi
[ $# -gt 0 ] || { sed -n 2,4p "$0" >&2; end 64 "no command"; }
load_machine "$name"
introduce "$@"
# In the terminal's foreground: the launcher forwards interrupts to the ranks.
launch_line "${lockstep[@]}" "$@"
trap - USR1 USR2 INT HUP TERM # no checkpoint on a signal here
exec "${line[@]}"
