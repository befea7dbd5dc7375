# shellcheck shell=bash
# Code common to the job scripts; sourced, never run. docs/slurm.md explains each part.
#
#   load_machine NAME    reads machines/NAME.env (a NAME with a slash is a file): the settings of one machine
#   resolve_run          sets run_dir from the array `training`; an element of a job array trains the seed of its number, or `variant`
#                        if the script sets that, in a directory of its own
#   launch COMMAND...    runs the ranks with the machine's launcher; forwards signals; sets `status`
#   finish RUN_DIR ...   ends the job: submits it again if the run can resume, and exits with `status`
#
# What depends on the scheduler is in schedulers/NAME.sh, which sets
#
#   job                  the job's number, for messages
#   element              the number of this element of a job array; empty: no array
#   own_launcher         the launcher, unless the machine's file sets another
#   signals              those that ask this script to stop
#   ways_again           why submit_again failed, for a message
#
# and defines
#
#   job_name             prints the name of this job, or element of an array, for the scheduler's commands
#   read_allocation      sets `nodes`, `tasks` (ranks), `ranks_a_node` (at most) and `cores` (a rank's; empty: unknown)
#   seconds_left         prints the time until the job's limit; nothing if there is none, or if the program asks by itself;
#                        fails if the scheduler does not tell
#   ran_out_of_memory    whether the scheduler reports that a rank did
#   why_not_again        sets `reason`: empty if this script may submit the job again, else why not. Do not call it in a
#                        subshell, which a signal would end
#   submit_again ...     runs the job again after this one has ended, with these arguments of the job script
set -euo pipefail

variant=
say() { printf '[%(%F %T)T] job %s: %s\n' -1 "$job${variant:+ ($variant)}" "$*"; }

give_up() {  # give_up STATUS TEXT
  say "error: $2" >&2
  exit "$1"
}

# --- the scheduler ---------------------------------------------------------------------------------------------------

# Flux may run within a job of another scheduler; of their variables it hides Slurm's from its own jobs.
find_scheduler() {
  if [ -n "${SLURM_JOB_ID:-}" ]; then
    scheduler=slurm
  elif [ -n "${FLUX_ENCLOSING_ID:-}${FLUX_URI:-}" ]; then
    scheduler=flux
  elif [ -n "${PBS_JOBID:-}" ]; then
    scheduler=pbs
  elif [ -n "${LSB_JOBID:-}" ]; then
    scheduler=lsf
  else
    scheduler=slurm
  fi
}
find_scheduler
# shellcheck source-path=SCRIPTDIR source=schedulers/slurm.sh
source "${BASH_SOURCE[0]%/*}/schedulers/$scheduler.sh"
# shellcheck source-path=SCRIPTDIR source=spares.sh
source "${BASH_SOURCE[0]%/*}/spares.sh"

# read_allocation's check where the scheduler tells nodes but not ranks.
require_ranks_a_node() {
  [[ ${ranks_a_node:-} =~ ^[1-9][0-9]*$ ]] ||
    give_up 64 "ranks_a_node='${ranks_a_node:-}' (this scheduler does not tell how many ranks a node gets); set it before load_machine"
}

# why_not_again where the scheduler gives no reason for ending a job: before its time limit, a job was cancelled, or the
# scheduler will start it again by itself.
told_to_end() {
  local now
  reason=
  case $warned in '' | USR1 | USR2) return 0 ;; esac
  printf -v now '%(%s)T' -1
  [ -n "$ends" ] && [ "$now" -ge "$ends" ] || reason="it was told to end before its time limit (SIG$warned)"
}

# --- the machine -----------------------------------------------------------------------------------------------------

load_machine() {
  # Variables that a machine's file may set; these defaults fit a plain cluster.
  launcher=$own_launcher   # srun, mpirun (or mpiexec), flux or jsrun; mpirun also where srun and MPI have no common PMI
  srun_options=(--mpi=pmix)
  mpirun_options=auto      # or a list of options that place the ranks; auto: chosen by mpirun's MPI
  flux_options=(-o cpu-affinity=per-task)
  jsrun_options=auto       # or a list of options that bind the ranks; auto: each to its share of the node's cores
  lockstep=(lockstep)      # with its wrapper, if any: (apptainer exec lockstep.sif lockstep)
  scratch=${SCRATCH:-$PWD} # where data and runs are
  recipes=$LOCKSTEP_SLURM/../recipes # configurations for --config
  stage=                   # node-local storage for copies of shards; empty: none
  max_restarts=50          # per submission, by these scripts; Slurm's own do not count
  stalled_restarts=1       # consecutive restarts without a newer checkpoint
  crash_restarts=2         # restarts after a rank crashed or ran out of memory, which seldom help
  spare_nodes=${LOCKSTEP_SPARE_NODES:-}   # restart within the job, and keep so many of its nodes for that; empty: requeue the job
  min_nodes=${LOCKSTEP_MIN_NODES:-}       # with spare_nodes: when none is left, continue on so few nodes; empty: requeue the job
  replace_slow=${LOCKSTEP_REPLACE_SLOW:-} # with spare_nodes: 1: a restart also replaces nodes that the program calls slow
  # Sets variables that a machine's file may read: nodes, tasks, ranks_a_node, cores.
  read_allocation
  local file=$1
  [[ $file == */* ]] || file=$LOCKSTEP_SLURM/machines/$file.env
  [ -r "$file" ] || give_up 66 "no machine '$1' (no file $file); there are: $(cd "$LOCKSTEP_SLURM/machines" && echo *.env)"
  # shellcheck source=/dev/null
  source "$file"
  case $launcher in
    srun | flux) ;;
    mpirun | mpiexec) resolve_mpirun ;;
    jsrun) [ "${jsrun_options[*]-}" != auto ] || jsrun_options=(--bind="packed:${cores:-1}") ;;
    *) give_up 64 "launcher=$launcher in $file (only srun, mpirun, mpiexec, flux and jsrun are known); set one of them" ;;
  esac
  # Since 22.05 srun does not inherit these from the job, and ranks would share one core.
  [ -z "$cores" ] || srun_options+=(--cpus-per-task="$cores")
  : "$scratch" "$recipes" "$stage" "$max_restarts" "$stalled_restarts" "$crash_restarts" "$ranks_a_node" \
    "$spare_nodes" "$min_nodes" "$replace_slow"
}

# Sets `launcher` to mpiexec if there is no mpirun, and `mpirun_options` if the machine's file does not: as many ranks per
# node as requested, each on separate cores.
resolve_mpirun() {
  local cores=${cores:-1}
  command -v "$launcher" >/dev/null || launcher=mpiexec
  command -v "$launcher" >/dev/null ||
    give_up 66 "neither mpirun nor mpiexec is in PATH (an MPI's module may not be loaded); load it in the machine's file"
  [ "${mpirun_options[*]-}" = auto ] || return 0
  case $("$launcher" --version 2>&1 || true) in
    *"Open MPI"* | *OpenRTE* | *PRRTE*) mpirun_options=(--map-by "ppr:$ranks_a_node:node:pe=$cores" --bind-to core) ;;
    *"Intel(R) MPI"*) # binds by itself; in a job it obeys -ppn only with this variable
      mpirun_options=(-ppn "$ranks_a_node")
      export I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=off
      ;;
    *HYDRA*) mpirun_options=(-ppn "$ranks_a_node" -bind-to "core:$cores") ;; # MPICH, MVAPICH
    *)
      say "warning: $launcher is of an unknown MPI; ranks are placed by its defaults (set mpirun_options to change this)"
      mpirun_options=()
      ;;
  esac
}

# --- the ranks -------------------------------------------------------------------------------------------------------

ranks=        # the launcher's process, while it runs
warned=       # the signal that asked this job to stop
interrupted=  # a signal came while the shell waited
limit=        # seconds that the ranks may take; empty: no limit
ends=         # when the scheduler will end the job, in seconds since 1970; empty: unknown
launched=0    # start time of the launcher, by SECONDS
launched_at=  # the same as date and time

# Sends SIGUSR1 for every signal: mpirun forwards it, but kills the ranks within a second of SIGTERM. `timeout` would die of
# SIGUSR1 and leave the ranks, so it gets SIGTERM. A process that has not yet become the launcher loses the signal, so a new
# one gets it twice.
ask_to_stop() {
  local sent=USR1
  [ -z "$limit" ] || sent=TERM
  signal_ranks "$sent" || true
  [ $((SECONDS - launched)) -gt 1 ] || (sleep 1 && signal_ranks "$sent") &
}

# Before version 0.73, `flux run` dies of signals that it should forward.
signal_ranks() {
  if [ "$launcher" = flux ]; then
    flux job killall --force --signal="$1" >/dev/null 2>&1
  else
    kill -"$1" "$ranks" 2>/dev/null
  fi
}

pass_on() {
  say "SIG$1: asking the ranks to save and stop"
  warned=$1
  interrupted=1
  [ -z "$ranks" ] || ask_to_stop
}
# Set before the launch: without traps a signal would end the shell. exec resets them.
trap_signals() {
  local name
  for name in "${signals[@]}"; do
    # shellcheck disable=SC2064
    trap "pass_on $name" "$name"
  done
}
trap_signals

# Sets `line` to the command that launches the ranks.
launch_line() {
  local on_nodes=()
  [ ${#chosen[@]} = 0 ] || place_ranks
  case $launcher in
    srun) line=(srun --kill-on-bad-exit=1 "${on_nodes[@]}" "${srun_options[@]}" "$@") ;;
    # All ranks of a node see all of its cores and GPUs that the job has; flux_options and jsrun_options bind them to cores.
    flux) line=(flux run --nodes="$nodes" --tasks-per-node="$ranks_a_node" --exclusive "${flux_options[@]}" "$@") ;;
    jsrun)
      line=(jsrun --nrs="$nodes" --rs_per_host=1 --tasks_per_rs="$ranks_a_node" -c ALL_CPUS -g ALL_GPUS
        "${jsrun_options[@]}" "$@")
      ;;
    *) line=("$launcher" -n "$tasks" "${on_nodes[@]}" "${mpirun_options[@]}" "$@") ;;
  esac
}

# Runs the launcher in the background, so that the shell's traps run at once.
launch() {
  local line
  if [ -n "$warned" ]; then
    status=75  # before the ranks had started; nothing is lost
    return
  fi
  launch_line "$@"
  if [ -n "$limit" ]; then line=(timeout --kill-after=30 "$limit" "${line[@]}"); fi
  launched=$SECONDS
  printf -v launched_at '%(%F %T)T' -1
  "${line[@]}" &
  ranks=$!
  [ -z "$warned" ] || ask_to_stop  # the signal came before the launcher had started
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

# Adds the options in LOCKSTEP_OPTIONS, where the scheduler passes no arguments to a script.
read_options() {
  local options
  read -ra options <<<"${LOCKSTEP_OPTIONS:-}"
  training+=("${options[@]}")
}

# Sets run_dir from `training`. Each element of an array uses its number as the seed, or has a variant, and a separate directory.
resolve_run() {
  local configuration
  use_stage
  # Repeated after a signal, which may have ended this command too: without run_dir the job cannot be resubmitted.
  while
    interrupted=
    status=0
    configuration=$("${lockstep[@]}" train "${training[@]}" --print-config) || status=$?
    [ -n "$interrupted" ]
  do :; done
  [ "$status" = 0 ] || give_up "$status" "these options cannot be trained with: ${training[*]}"
  run_dir=$(sed -n 's/^run-dir=//p' <<<"$configuration")
  [ -n "$run_dir" ] || run_dir=runs/$(sed -n 's/^model=//p' <<<"$configuration")
  [ -z "$element" ] || separate_element
  limit_time "$(sed -n 's/^time-limit=\([0-9]*\).*/\1/p' <<<"$configuration")"
  log_size=$(size_of_log)
  reserve_spares
}

# Adds --stage-dir if the machine has `stage`, unless the options set it or need no data.
use_stage() {
  [ -n "$stage" ] || return 0
  case " ${training[*]} " in *" --stage-dir"* | *" --synthetic "*) return 0 ;; esac
  training+=(--stage-dir "$stage")
}

size_of_log() { stat -c %s "$run_dir/log/rank-00000.log" 2>/dev/null || echo 0; }

# logged PATTERN: whether rank 0 has logged it since the launcher started.
logged() { log_from "$log_size" | grep -E "$1" >/dev/null; }

# log_from BYTE: prints the log of rank 0 from there on. No link to another file is followed, and a FIFO is not waited for.
log_from() {
  local log=$run_dir/log/rank-00000.log
  [ ! -L "$run_dir/log" ] && is_own_file "$log" &&
    dd if="$log" bs=1M iflag=nofollow,nonblock,skip_bytes skip="$1" status=none 2>/dev/null
}
is_complete() { logged 'finished at step|nothing to do: step'; }

separate_element() {
  if [ -n "$variant" ]; then
    run_dir=${run_dir%/}/$variant
  else
    run_dir=${run_dir%/}-seed-$element
    drop_options --seed
    training+=(--seed "$element")
  fi
  drop_options --run-dir
  training+=(--run-dir "$run_dir")
}

# limit_time SECONDS: lets the ranks save and stop before the scheduler ends the job, or after SECONDS (0: no own limit) if that
# is earlier.
limit_time() {
  local left own=${1:-0} reserve=60  # seconds for this script, for rounded answers and for clocks that differ
  if ! left=$(seconds_left); then
    say "warning: the scheduler does not tell how long this job may run; give --time-limit, so that the run saves in time"
    return 0
  fi
  [ -n "$left" ] || return 0
  printf -v ends '%(%s)T' -1
  ends=$((ends + left))
  left=$((left > reserve ? left - reserve : 1))
  if [ "$own" -gt 0 ] && [ "$own" -le "$left" ]; then return 0; fi
  drop_options --time-limit
  training+=(--time-limit "${left}s")
}

# drop_options NAME...: removes these options and their values from `training`.
drop_options() {
  local argument name kept=() skip=
  for argument in "${training[@]}"; do
    if [[ -n $skip && $argument != --* ]]; then
      skip=
      continue
    fi
    skip=
    for name in "$@"; do
      [ "$argument" != "$name" ] || skip=1
      [[ -z $skip && $argument != "$name"=* ]] || continue 2
    done
    kept+=("$argument")
  done
  training=("${kept[@]}")
}

# --- submitting again ------------------------------------------------------------------------------------------------

# Whether the same command can resume after `status`: docs/exit-status.md.
goes_on() {
  case $1 in
    1 | 14 | 70 | 75 | 205 | 244) return 0 ;;
    *) [ "$1" -gt 128 ] && [ "$1" -lt 160 ] ;;
  esac
}

# Whether a rank crashed (SIGILL, SIGBUS, SIGFPE, SIGSEGV), or the scheduler reports that one ran out of memory.
crashed() {
  case $1 in
    132 | 135 | 136 | 139) return 0 ;;
    1 | 137 | 143) ran_out_of_memory ;;
    *) return 1 ;;
  esac
}

# A link to the file, or a text with its name on a file system without links.
newest_checkpoint() {
  local latest=$1/checkpoints/latest name=
  if [ -L "$latest" ]; then
    name=$(readlink "$latest")
  elif [ -f "$latest" ] && [ "$(wc -c < "$latest")" -lt 256 ]; then
    IFS= read -r name < "$latest" || true
    name=${name%$'\r'}
  fi
  [[ $name =~ ^step-[0-9]+\.h5$ ]] || name=none
  echo "$name"
}

# Whether a file of a run directory is a file or absent. Somebody else may have made the directory, so no link may lead out of it.
is_own_file() {
  [ ! -L "$1" ] && { [ ! -e "$1" ] || { [ -f "$1" ] && [ "$(stat -c %h "$1")" -le 1 ]; }; }
}

# Standard input goes to the end of such a file, which is made if it is absent.
append_to() { is_own_file "$1" && dd of="$1" oflag=append,nofollow,nonblock conv=notrunc status=none; }

# finish RUN_DIR [ARGUMENTS OF THE JOB SCRIPT...]
finish() {
  local run_dir=$1 log=$1/restarts first_job where restarts
  first_job=${LOCKSTEP_FIRST_JOB:-$(job_name)}
  shift
  while
    check_restart
    where=
    if restarts_here; then where=in-job; fi
    record_restart "$where" "${newly_left_out:+left-out=$(joined "${newly_left_out[@]}")}" "${named:+named=$(joined "${named[@]}")}"
    [ -n "$where" ]
  do
    launch_again
  done
  submit_again "$@" || say "cannot submit the job again ($ways_again); submit the same command again"
  exit "$status"
}

# Returns if the run may be restarted after `status`; else ends the script.
check_restart() {
  local reason stalled crashes
  if [ "$status" = 0 ] && [ -z "$warned" ] && [ "$(size_of_log)" = "$log_size" ]; then
    say "the launcher reports success, but no rank has started"
    status=70
  fi
  # mpirun may return 0 although the ranks were stopped (MPICH's after a signal that it forwarded, Open MPI 5's after a SIGTERM
  # that Slurm sent only to the ranks) or lost with their node (Open MPI 5's). With spare nodes, srun does not wait for all ranks.
  if [ "$status" = 0 ] && { [ "$launcher" != srun ] || [ -n "$wanted" ]; } && ! is_complete; then
    status=70
    if logged 'stopped (on request|before the time limit) at step'; then status=75; fi
  fi
  if [ "$status" = 0 ]; then
    say "done"
    exit 0
  fi
  goes_on "$status" || is_of_restart ||
    give_up "$status" "the same command cannot resume after status $status (docs/exit-status.md); not submitted again"
  why_not_again
  if [ -n "$reason" ]; then
    say "status $status; not submitted again: $reason"
    exit "$status"
  fi
  crash=
  if crashed "$status"; then crash=crash; fi
  checkpoint=$(newest_checkpoint "$run_dir")
  mkdir -p "$run_dir"
  append_to "$log" </dev/null || give_up "$status" "cannot count restarts in $log; not submitted again"
  restarts=$(awk -v job="$first_job" '$1 == job' "$log" | wc -l)
  stalled=$(awk -v job="$first_job" -v now="$checkpoint" '$1 == job { n = $3 == now ? n + 1 : 0 } END { print n + 0 }' "$log")
  [ "$restarts" -lt "$max_restarts" ] ||
    give_up "$status" "status $status after $restarts restarts (max_restarts=$max_restarts); not submitted again"
  [ "$stalled" -le "$stalled_restarts" ] ||
    give_up "$status" "status $status and still at checkpoint $checkpoint after $stalled restarts (stalled_restarts=$stalled_restarts); not submitted again"
  crashes=$(awk -v job="$first_job" '$1 == job && $5 == "crash"' "$log" | wc -l)
  [ -z "$crash" ] || [ "$crashes" -lt "$crash_restarts" ] ||
    give_up "$status" "status $status: a rank crashed or ran out of memory again, after $crashes restarts for that reason (crash_restarts=$crash_restarts); not submitted again"
}

# record_restart WORD...: one line: the submission, the status, the newest checkpoint, the time, `crash` if that was the cause, and
# the words that are not empty.
record_restart() {
  local word line
  printf -v line '%s %s %s %(%FT%T)T' "$first_job" "$status" "$checkpoint" -1
  for word in "$crash" "$@"; do line+=${word:+ $word}; done
  append_to "$log" <<<"$line" || give_up "$status" "cannot count restarts in $log; not submitted again"
  say "status $status at checkpoint $checkpoint: restart $((restarts + 1)) of at most $max_restarts"
}
