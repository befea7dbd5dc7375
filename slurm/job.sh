# shellcheck shell=bash
# What the job scripts share; sourced, never run. docs/slurm.md says what each part is for.
#
#   load_machine NAME    machines/NAME.env, or a file where NAME has a slash: all that differs between machines
#   resolve_run          sets run_dir from the array `training`, and makes a job array's elements train a seed each
#   launch COMMAND...    the ranks, by the machine's launcher; signals are passed on; sets `status`
#   finish RUN_DIR ...   the job's end: submits it again where that goes on, and exits with `status`
set -euo pipefail

say() { printf '[%(%F %T)T] job %s: %s\n' -1 "${SLURM_JOB_ID:-none}" "$*"; }

give_up() {  # give_up STATUS TEXT
  say "error: $2" >&2
  exit "$1"
}

# --- the machine -----------------------------------------------------------------------------------------------------

load_machine() {
  # What a machine's file may set; these are a plain cluster's.
  launcher=srun            # or mpirun, where srun and MPI do not understand each other
  srun_options=(--mpi=pmix)
  mpirun_options=()
  lockstep=(lockstep)      # with what it takes to run it: (apptainer exec lockstep.sif lockstep)
  python=python3           # draws the scaling study's picture, where it has matplotlib
  scratch=${SCRATCH:-$PWD} # where data and runs are
  stage=                   # node-local storage for copies of shards, empty where there is none
  max_restarts=50          # of one submission, by these scripts; Slurm's own do not count
  stalled_restarts=1       # of them in a row without a newer checkpoint
  local file=$1
  [[ $file == */* ]] || file=$LOCKSTEP_SLURM/machines/$file.env
  [ -r "$file" ] || give_up 66 "no machine '$1' (no file $file) there are: $(cd "$LOCKSTEP_SLURM/machines" && echo *.env)"
  # shellcheck source=/dev/null
  source "$file"
  [[ $launcher == srun || $launcher == mpirun ]] ||
    give_up 64 "launcher=$launcher in $file (only srun and mpirun are known) set one of them"
  # Since 22.05 srun does not take these from the job by itself, and ranks would share one core.
  [ -z "${SLURM_CPUS_PER_TASK:-}" ] || srun_options+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
  : "$python" "$scratch" "$stage" "$max_restarts" "$stalled_restarts"
}

# --- the ranks -------------------------------------------------------------------------------------------------------

ranks=        # the launcher's process, while it runs
warned=       # the signal that asked this job to stop
interrupted=  # a signal came while the shell waited

# SIGUSR1 whatever came: mpirun forwards it, and would kill the ranks within a second of SIGTERM.
pass_on() {
  say "SIG$1: asking the ranks to save and stop"
  warned=$1
  interrupted=1
  [ -z "$ranks" ] || kill -USR1 "$ranks" 2>/dev/null || true
}

# The shell waits for a child in the background, so that its traps run at once.
launch() {
  if [ -n "$warned" ]; then
    status=75  # before the ranks were there; nothing is lost
    return
  fi
  case $launcher in
    srun) set -- srun --kill-on-bad-exit=1 "${srun_options[@]}" "$@" ;;
    mpirun) set -- mpirun "${mpirun_options[@]}" "$@" ;;
  esac
  trap 'pass_on USR1' USR1
  trap 'pass_on TERM' TERM
  if [ -n "${limit:-}" ]; then set -- timeout --kill-after=30 "$limit" "$@"; fi
  "$@" &
  ranks=$!
  interrupted=$warned
  while
    status=0
    wait "$ranks" || status=$?
    [ -n "$interrupted" ]
  do
    interrupted=
  done
  ranks=
}

# --- the run ---------------------------------------------------------------------------------------------------------

# Sets run_dir from `training`. In an array each element trains the seed of its number, in a directory of its own.
resolve_run() {
  local configuration
  status=0
  use_stage
  configuration=$("${lockstep[@]}" train "${training[@]}" --print-config) || status=$?
  [ "$status" = 0 ] || give_up "$status" "these options cannot be trained with: ${training[*]}"
  run_dir=$(sed -n 's/^run-dir=//p' <<<"$configuration")
  [ -n "$run_dir" ] || run_dir=runs/$(sed -n 's/^model=//p' <<<"$configuration")
  [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || make_seed
  log_size=$(size_of_log)
}

# --stage-dir where the machine has a place for it, unless the options say otherwise.
use_stage() {
  [ -n "$stage" ] || return 0
  case " ${training[*]} " in *" --stage-dir"* | *" --synthetic "*) return 0 ;; esac
  training+=(--stage-dir "$stage")
}

size_of_log() { stat -c %s "$run_dir/log/rank-00000.log" 2>/dev/null || echo 0; }

make_seed() {
  local argument kept=() skip=
  run_dir+=-seed-$SLURM_ARRAY_TASK_ID
  for argument in "${training[@]}"; do
    case $argument in
      --run-dir | --seed) skip=1 ;;
      --run-dir=* | --seed=*) ;;
      *) [ -n "$skip" ] || kept+=("$argument"); skip= ;;
    esac
  done
  training=("${kept[@]}" --seed "$SLURM_ARRAY_TASK_ID" --run-dir "$run_dir")
}

# --- submitting again ------------------------------------------------------------------------------------------------

# An element of an array by its own name: the last one's SLURM_JOB_ID is also that of the whole array.
job_name() {
  if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    echo "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
  else
    echo "$SLURM_JOB_ID"
  fi
}

# Whether the same command goes on after `status`: docs/exit-status.md.
goes_on() {
  case $1 in
    1 | 70 | 75 | 205 | 244) return 0 ;;
    *) [ "$1" -gt 128 ] && [ "$1" -lt 160 ] ;;
  esac
}

# Empty where this job may be submitted again by us, else why not. A job that its user cancelled is ending, like one
# whose time was up, but Slurm gives no reason for it; one that Slurm will start anew by itself waits already.
why_not_again() {
  local facts
  if command -v scontrol >/dev/null; then
    facts=$(scontrol -o show job "$(job_name)" 2>&1) || { echo "Slurm does not answer: $facts"; return; }
    facts="$(sed -n 's/.* JobState=\([^ ]*\) .*/\1/p' <<<"$facts") $(sed -n 's/.* Reason=\([^ ]*\) .*/\1/p' <<<"$facts")"
  elif command -v squeue >/dev/null; then
    facts=$(squeue -h -j "$(job_name)" -o '%T %r' 2>&1) || { echo "Slurm does not answer: $facts"; return; }
  elif [ "$warned" = TERM ]; then
    facts="told to end"
  else
    return 0  # nobody to ask
  fi
  case $facts in
    RUNNING* | *" TimeLimit") ;;
    PENDING* | REQUEUED*) echo "Slurm starts it again by itself ($facts)" ;;
    *) echo "it was cancelled ($facts)" ;;
  esac
}

newest_checkpoint() { readlink "$1/checkpoints/latest" || echo none; }

# The job once more, when this one is over: as Slurm's own restart, or where that is not to be had as another job.
submit_again() {
  # Slurm ends this job at once, also the command that asks for it, unless that ignores SIGTERM.
  if command -v scontrol >/dev/null && (trap '' TERM && scontrol requeue "$(job_name)"); then
    say "requeued; Slurm starts it again in some two minutes"
    return
  fi
  command -v sbatch >/dev/null || return 1
  local options=(--parsable "--dependency=afterany:$SLURM_JOB_ID,singleton" "--job-name=$SLURM_JOB_NAME"
    "--nodes=$SLURM_JOB_NUM_NODES" "--partition=$SLURM_JOB_PARTITION")
  [ -z "${SLURM_NTASKS:-}" ] || options+=("--ntasks=$SLURM_NTASKS")
  [ -z "${SLURM_NTASKS_PER_NODE:-}" ] || options+=("--ntasks-per-node=$SLURM_NTASKS_PER_NODE")
  [ -z "${SLURM_CPUS_PER_TASK:-}" ] || options+=("--cpus-per-task=$SLURM_CPUS_PER_TASK")
  [ -z "${SLURM_GPUS_PER_NODE:-}" ] || options+=("--gpus-per-node=$SLURM_GPUS_PER_NODE")
  [ -z "${SLURM_JOB_ACCOUNT:-}" ] || options+=("--account=$SLURM_JOB_ACCOUNT")
  [ -z "${SLURM_JOB_QOS:-}" ] || options+=("--qos=$SLURM_JOB_QOS")
  [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || options+=("--array=$SLURM_ARRAY_TASK_ID")
  local job
  job=$(LOCKSTEP_FIRST_JOB=$first_job sbatch "${options[@]}" "$0" "$@") || return 1
  say "submitted again as job $job, which waits for this one to end"
}

# finish RUN_DIR [ARGUMENTS OF THE JOB SCRIPT...]
finish() {
  local run_dir=$1 log=$1/restarts reason checkpoint restarts stalled
  shift
  first_job=${LOCKSTEP_FIRST_JOB:-$(job_name)}
  if [ "$status" = 0 ] && [ "$(size_of_log)" = "$log_size" ]; then
    say "the launcher reports success, but no rank has started"
    status=70
  fi
  if [ "$status" = 0 ]; then
    say "done"
    exit 0
  fi
  goes_on "$status" || give_up "$status" "status $status is not one to go on after (docs/exit-status.md); not submitted again"
  reason=$(why_not_again)
  if [ -n "$reason" ]; then
    say "status $status; not submitted again: $reason"
    exit "$status"
  fi
  # One line a restart: the submission, the status, the newest checkpoint, when.
  checkpoint=$(newest_checkpoint "$run_dir")
  mkdir -p "$run_dir"
  touch "$log" || give_up "$status" "cannot count restarts in $log; not submitted again"
  restarts=$(awk -v job="$first_job" '$1 == job' "$log" | wc -l)
  stalled=$(awk -v job="$first_job" -v now="$checkpoint" '$1 == job { n = $3 == now ? n + 1 : 0 } END { print n + 0 }' "$log")
  [ "$restarts" -lt "$max_restarts" ] ||
    give_up "$status" "status $status after $restarts restarts (max_restarts=$max_restarts); not submitted again"
  [ "$stalled" -le "$stalled_restarts" ] ||
    give_up "$status" "status $status and still at checkpoint $checkpoint after $stalled restarts (stalled_restarts=$stalled_restarts); not submitted again"
  printf '%s %s %s %(%FT%T)T\n' "$first_job" "$status" "$checkpoint" -1 >>"$log" ||
    give_up "$status" "cannot count restarts in $log; not submitted again"
  say "status $status at checkpoint $checkpoint: restart $((restarts + 1)) of at most $max_restarts"
  submit_again "$@" || say "cannot submit by itself (neither scontrol requeue nor sbatch works here); submit the same command again"
  exit "$status"
}
