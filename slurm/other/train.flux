#!/bin/bash
# train.flux [OPTIONS OF LOCKSTEP TRAIN...]: train.sbatch for Flux (docs/slurm.md): flux batch slurm/other/train.flux. Edit the
# lines 1, 2, 3.
#flux: --job-name=resnet50 -N 2 -n 8 -c 8 -t 24h
#flux: --signal=SIGUSR1@300s
ranks_a_node=4
# 1: that number, and the first line for Flux: nodes, ranks, cores a rank; on machines with GPUs also -g 1
# Never in the directory where it was submitted, into which somebody may have put a job.sh.
[[ ${LOCKSTEP_SLURM:-} == /* && ! -k $LOCKSTEP_SLURM && -r $LOCKSTEP_SLURM/job.sh ]] || { echo "error: no job.sh in LOCKSTEP_SLURM=${LOCKSTEP_SLURM:-} (flux passes it on); module load lockstep, or set it to the absolute path of slurm/" >&2; exit 66; }
# shellcheck source-path=SCRIPTDIR/.. source=job.sh
source "$LOCKSTEP_SLURM/job.sh"
load_machine "" # 2: a file, or NAME of the site or in machines/; empty: the default
training=(--config "$recipes/imagenet-resnet50.conf" --data "$scratch/shards" --run-dir "$scratch/runs/resnet50") # 3

training+=("$@")
resolve_run
launch "${lockstep[@]}" train "${training[@]}"
finish "$run_dir" "$@"
