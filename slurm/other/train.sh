#!/bin/bash
# train.sbatch for PBS, LSF and Flux (docs/slurm.md), of which each reads only its own lines. Edit the lines 1, 2, 3.
#   qsub -v "LOCKSTEP_SLURM,LOCKSTEP_OPTIONS='OPTIONS OF LOCKSTEP TRAIN...'" slurm/other/train.sh
#   LOCKSTEP_OPTIONS="OPTIONS OF LOCKSTEP TRAIN..." bsub < slurm/other/train.sh
#   flux batch slurm/other/train.sh OPTIONS OF LOCKSTEP TRAIN...
#PBS -r y -j oe -k doe
#BSUB -r -wa USR1 -wt 5 -o resnet50.%J.out
#flux: --signal=SIGUSR1@300s
#PBS -N resnet50 -l select=2:ncpus=32:mpiprocs=4:ompthreads=8 -l place=scatter -l walltime=24:00:00
#BSUB -J resnet50 -n 64 -R "span[ptile=32]" -W 24:00
#flux: --job-name=resnet50 -N 2 -n 8 -c 8 -t 24h
ranks_a_node=4
# 1: your scheduler's line: for PBS nodes; a node's cores, ranks, and cores a rank; for LSF cores, cores a node (with jsrun: -nnodes 2 in
# place of -n and -R); for Flux nodes, ranks, cores a rank. For LSF and Flux also the number of ranks a node. On machines with GPUs also
# :ngpus=4 for a node of PBS, -gpu "num=4:j_exclusive=yes" for one of LSF, -g 1 for a rank of Flux.
# Never in the directory where it was submitted, into which somebody may have put a job.sh.
[[ ${LOCKSTEP_SLURM:-} == /* && ! -k $LOCKSTEP_SLURM && -r $LOCKSTEP_SLURM/schedulers/slurm.sh ]] || { echo "error: no job.sh in LOCKSTEP_SLURM=${LOCKSTEP_SLURM:-} (qsub -v LOCKSTEP_SLURM passes it on, bsub and flux without that); module load lockstep, or set it to the absolute path of slurm/" >&2; exit 66; }
source "$LOCKSTEP_SLURM/job.sh"
load_machine "" # 2: a file, or NAME of the site or in machines/; empty: the default
training=(--config "$recipes/imagenet-resnet50.conf" --data "$scratch/shards" --run-dir "$scratch/runs/resnet50") # 3

read -ra options <<<"${LOCKSTEP_OPTIONS:-}" # where the scheduler passes no arguments
training+=("$@" "${options[@]}")
resolve_run
launch "${lockstep[@]}" train "${training[@]}"
finish "$run_dir" "$@"
