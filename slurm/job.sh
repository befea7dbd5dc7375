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
  launcher=srun            # or mpirun (or mpiexec), where srun and MPI do not understand each other
  srun_options=(--mpi=pmix)
  mpirun_options=auto      # or a list: options that place the ranks; auto: by the MPI that mpirun is of
  lockstep=(lockstep)      # with what it takes to run it: (apptainer exec lockstep.sif lockstep)
  python=python3           # draws the scaling study's picture, where it has matplotlib
  scratch=${SCRATCH:-$PWD} # where data and runs are
  stage=                   # node-local storage for copies of shards, empty where there is none
  max_restarts=50          # of one submission, by these scripts; Slurm's own do not count
  stalled_restarts=1       # of them in a row without a newer checkpoint
  crash_restarts=2         # of them after a rank crashed or had too little memory, which a restart seldom cures
  # What it may use, whatever of it the job was asked for by; a number of ranks that the nodes do not share evenly too.
  nodes=${SLURM_JOB_NUM_NODES:-1}
  tasks=${SLURM_NTASKS:-$((nodes * ${SLURM_NTASKS_PER_NODE:-1}))}
  ranks_a_node=$(((tasks + nodes - 1) / nodes))
  local file=$1
  [[ $file == */* ]] || file=$LOCKSTEP_SLURM/machines/$file.env
  [ -r "$file" ] || give_up 66 "no machine '$1' (no file $file) there are: $(cd "$LOCKSTEP_SLURM/machines" && echo *.env)"
  # shellcheck source=/dev/null
  source "$file"
  [[ $launcher == srun || $launcher == mpirun || $launcher == mpiexec ]] ||
    give_up 64 "launcher=$launcher in $file (only srun, mpirun and mpiexec are known) set one of them"
  [ "$launcher" = srun ] || resolve_mpirun
  # Since 22.05 srun does not take these from the job by itself, and ranks would share one core.
  [ -z "${SLURM_CPUS_PER_TASK:-}" ] || srun_options+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
  : "$python" "$scratch" "$stage" "$max_restarts" "$stalled_restarts" "$crash_restarts" "$ranks_a_node"
}

# Sets `launcher` to mpiexec where there is no mpirun, and `mpirun_options` where the machine's file does not: as many ranks a
# node as were asked for, each on cores of its own.
resolve_mpirun() {
  local cores=${SLURM_CPUS_PER_TASK:-1}
  command -v "$launcher" >/dev/null || launcher=mpiexec
  command -v "$launcher" >/dev/null ||
    give_up 66 "neither mpirun nor mpiexec is in PATH (an MPI's module may not be loaded) load it in the machine's file"
  [ "${mpirun_options[*]-}" = auto ] || return 0
  case $("$launcher" --version 2>&1 || true) in
    *"Open MPI"* | *OpenRTE* | *PRRTE*) mpirun_options=(--map-by "ppr:$ranks_a_node:node:pe=$cores" --bind-to core) ;;
    *"Intel(R) MPI"*) # binds by itself, and in a Slurm job heeds -ppn only when told to
      mpirun_options=(-ppn "$ranks_a_node")
      export I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=off
      ;;
    *HYDRA*) mpirun_options=(-ppn "$ranks_a_node" -bind-to "core:$cores") ;; # MPICH, MVAPICH
    *)
      say "warning: $launcher is of an MPI that is not known here; its ranks are placed as it does by itself (mpirun_options)"
      mpirun_options=()
      ;;
  esac
}

# --- the ranks -------------------------------------------------------------------------------------------------------

ranks=        # the launcher's process, while it runs
warned=       # the signal that asked this job to stop
interrupted=  # a signal came while the shell waited
limit=        # seconds that the ranks may take; none where empty
launched=0    # when, by SECONDS

# SIGUSR1 whatever came: mpirun forwards it, and would kill the ranks within a second of SIGTERM. But timeout would die
# of it, and leave them. A process that is just about to become the launcher would lose it, so a young one is asked twice.
ask_to_stop() {
  local sent=USR1
  [ -z "$limit" ] || sent=TERM
  kill -"$sent" "$ranks" 2>/dev/null || true
  [ $((SECONDS - launched)) -gt 1 ] || (sleep 1 && kill -"$sent" "$ranks" 2>/dev/null) &
}

pass_on() {
  say "SIG$1: asking the ranks to save and stop"
  warned=$1
  interrupted=1
  [ -z "$ranks" ] || ask_to_stop
}
# From here on, for without them a signal ends the shell; exec undoes them.
trap 'pass_on USR1' USR1
trap 'pass_on TERM' TERM

# The shell waits for a child in the background, so that its traps run at once.
launch() {
  if [ -n "$warned" ]; then
    status=75  # before the ranks were there; nothing is lost
    return
  fi
  case $launcher in
    srun) set -- srun --kill-on-bad-exit=1 "${srun_options[@]}" "$@" ;;
    *) set -- "$launcher" -n "$tasks" "${mpirun_options[@]}" "$@" ;;
  esac
  if [ -n "$limit" ]; then set -- timeout --kill-after=30 "$limit" "$@"; fi
  launched=$SECONDS
  "$@" &
  ranks=$!
  [ -z "$warned" ] || ask_to_stop  # it came before there was anyone to pass it on to
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
  use_stage
  # Once more where a signal came, which may have ended this too: who does not know run_dir cannot submit again.
  while
    interrupted=
    status=0
    configuration=$("${lockstep[@]}" train "${training[@]}" --print-config) || status=$?
    [ -n "$interrupted" ]
  do :; done
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
  run_dir=${run_dir%/}-seed-$SLURM_ARRAY_TASK_ID
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

# Whether a rank crashed by a fault of its own (SIGILL, SIGBUS, SIGFPE, SIGSEGV), or Slurm found that one had too little
# memory: srun returns 1 then, and the job's details have a signal 125 that is none.
crashed() {
  case $1 in
    132 | 135 | 136 | 139) return 0 ;;
    1 | 137 | 143) ;;
    *) return 1 ;;
  esac
  command -v scontrol >/dev/null &&
    [[ $(scontrol -d -o show job "$(job_name)" 2>/dev/null) =~ \ DerivedExitCode=[0-9]+:125\  ]]
}

# Sets `facts` to the job's state and Slurm's reason for it, or to why these cannot be had. A controller that is busy, or is
# started anew just now, is asked for two minutes, unless Slurm kills this job before.
ask_slurm() {
  local pause
  for pause in 1 2 4 8 16 32 64 0; do
    if command -v scontrol >/dev/null; then
      if facts=$(scontrol -o show job "$(job_name)" 2>&1); then
        facts="$(sed -n 's/.* JobState=\([^ ]*\) .*/\1/p' <<<"$facts") $(sed -n 's/.* Reason=\([^ ]*\) .*/\1/p' <<<"$facts")"
        return
      fi
    elif facts=$(squeue -h -j "$(job_name)" -o '%T %r' 2>&1); then
      return
    fi
    sleep "$pause" || true
  done
  return 1
}

# Sets `reason`: empty where this job may be submitted again by us, else why not. A job that its user cancelled is ending,
# like one whose time was up, but Slurm gives no reason for it; one that Slurm will start anew by itself waits already.
# Not in a subshell, which a signal would end.
why_not_again() {
  local facts
  reason=
  if command -v scontrol >/dev/null || command -v squeue >/dev/null; then
    ask_slurm || { reason="Slurm does not answer: $facts"; return; }
  elif [ "$warned" = TERM ]; then
    facts="told to end"
  else
    return 0  # nobody to ask
  fi
  case $facts in
    RUNNING* | *" TimeLimit") ;;
    PENDING* | REQUEUED*) reason="Slurm starts it again by itself ($facts)" ;;
    *) reason="it was cancelled ($facts)" ;;
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
  local job name value time='' gres=''
  local options=(--parsable "--dependency=afterany:$(job_name)" "--job-name=$SLURM_JOB_NAME"
    "--nodes=$SLURM_JOB_NUM_NODES" "--partition=$SLURM_JOB_PARTITION")
  # No variable has these two.
  read -r time gres < <(squeue -h -j "$(job_name)" -o '%l %b' 2>/dev/null) || true
  [[ ! $time =~ ^([0-9:-]+|UNLIMITED)$ ]] || options+=("--time=$time")
  for name in NTASKS NTASKS_PER_NODE CPUS_PER_TASK GPUS GPUS_PER_NODE GPUS_PER_SOCKET GPUS_PER_TASK; do
    value=SLURM_$name
    name=${name,,}
    [ -z "${!value:-}" ] || options+=("--${name//_/-}=${!value}")
  done
  # It names GPUs that were asked for by --gpus-per-node too. Newer Slurms write gres/gpu:4 where 22.05 writes gres:gpu:4.
  gres=${gres//gres[:\/]/}
  [[ -z $gres || $gres == N/A || $gres == "(null)" || -n ${SLURM_GPUS_PER_NODE:-} ]] || options+=("--gres=$gres")
  [ -z "${SLURM_JOB_ACCOUNT:-}" ] || options+=("--account=$SLURM_JOB_ACCOUNT")
  [ -z "${SLURM_JOB_QOS:-}" ] || options+=("--qos=$SLURM_JOB_QOS")
  [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || options+=("--array=$SLURM_ARRAY_TASK_ID")
  job=$(LOCKSTEP_SLURM=$LOCKSTEP_SLURM LOCKSTEP_FIRST_JOB=$first_job sbatch "${options[@]}" "$0" "$@") || return 1
  say "submitted again as job $job, which waits for this one to end"
}

# finish RUN_DIR [ARGUMENTS OF THE JOB SCRIPT...]
finish() {
  local run_dir=$1 log=$1/restarts reason checkpoint restarts stalled crash='' crashes
  shift
  first_job=${LOCKSTEP_FIRST_JOB:-$(job_name)}
  # MPICH's mpirun returns 0 after a signal that it forwarded. A run that was done says so when it is started again.
  if [ "$status" = 0 ] && [ -n "$warned" ] && [ "$launcher" != srun ]; then status=75; fi
  if [ "$status" = 0 ] && [ "$(size_of_log)" = "$log_size" ]; then
    say "the launcher reports success, but no rank has started"
    status=70
  fi
  if [ "$status" = 0 ]; then
    say "done"
    exit 0
  fi
  goes_on "$status" || give_up "$status" "status $status is not one to go on after (docs/exit-status.md); not submitted again"
  why_not_again
  if [ -n "$reason" ]; then
    say "status $status; not submitted again: $reason"
    exit "$status"
  fi
  if crashed "$status"; then crash=crash; fi
  # One line a restart: the submission, the status, the newest checkpoint, when; and whether a crash was the cause.
  checkpoint=$(newest_checkpoint "$run_dir")
  mkdir -p "$run_dir"
  touch "$log" || give_up "$status" "cannot count restarts in $log; not submitted again"
  restarts=$(awk -v job="$first_job" '$1 == job' "$log" | wc -l)
  stalled=$(awk -v job="$first_job" -v now="$checkpoint" '$1 == job { n = $3 == now ? n + 1 : 0 } END { print n + 0 }' "$log")
  [ "$restarts" -lt "$max_restarts" ] ||
    give_up "$status" "status $status after $restarts restarts (max_restarts=$max_restarts); not submitted again"
  [ "$stalled" -le "$stalled_restarts" ] ||
    give_up "$status" "status $status and still at checkpoint $checkpoint after $stalled restarts (stalled_restarts=$stalled_restarts); not submitted again"
  crashes=$(awk -v job="$first_job" '$1 == job && $5 == "crash"' "$log" | wc -l)
  [ -z "$crash" ] || [ "$crashes" -lt "$crash_restarts" ] ||
    give_up "$status" "status $status: a rank crashed or had too little memory, once more after $crashes restarts for that (crash_restarts=$crash_restarts); not submitted again"
  printf '%s %s %s %(%FT%T)T%s\n' "$first_job" "$status" "$checkpoint" -1 "${crash:+ crash}" >>"$log" ||
    give_up "$status" "cannot count restarts in $log; not submitted again"
  say "status $status at checkpoint $checkpoint: restart $((restarts + 1)) of at most $max_restarts"
  submit_again "$@" || say "cannot submit by itself (neither scontrol requeue nor sbatch works here); submit the same command again"
  exit "$status"
}
