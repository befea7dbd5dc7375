# shellcheck shell=bash disable=SC2317
# Code common to the job scripts; sourced, never run. docs/slurm.md explains each part.
#
#   load_machine NAME    reads the settings of one machine: a file (with a slash), NAME.env of the site or of machines/, or the default
#   resolve_run          sets run_dir from the array `training`; an element of a job array trains the seed of its number, unless `variant` is set
#   launch COMMAND...    runs the ranks with the machine's launcher; forwards signals; sets `status`
#   finish RUN_DIR ...   ends the job: submits it again if the run can resume, and exits with `status`
#
# schedulers/NAME.sh sets `job` (of this job, or element of an array, for messages and the scheduler's commands; none: no job), `element`
# (of a job array; empty: no array), `own_launcher` and `ways_again` (why submit_again failed, for a message), and defines
#
#   why_not_here         sets `reason`: empty if this script may start ranks here, else why not
#   read_allocation      sets `nodes`, `tasks` (ranks), `ranks_a_node` (at most) and `cores` (a rank's; empty: unknown)
#   seconds_left         prints the time until the job's limit; nothing if there is none, or if the program asks by itself; may fail
#   why_not_again        sets `cause` (why the ranks ended, as far as the scheduler tells: "out of memory", "preemption" ...) and `reason` (empty if this script may submit the
#                        job again). Do not call it in a subshell, which a signal would end
#   submit_again ...     runs the job again after this one has ended, with these arguments of the job script
#
# Code of sites and users runs without strict mode: only the functions that job scripts call are strict, by `local -`.

# Functions of users in place of the commands used here, exported or of their start-up files, and options that change patterns.
unset_functions() {
  builtin unset -f awk basename cat cd compgen date dd declare echo env exit export find flock grep head id kill local ls mapfile mkdir mv \
    numfmt od printf read readlink return rm sed set shift shopt sleep sort source stat tail test timeout tr trap true type unset wait wc '[' \
    scontrol sacct sbatch scancel sinfo squeue srun
  shopt -u failglob nullglob nocasematch expand_aliases
}
unset_functions

variant='' interactive='' told='' phase='before the ranks were started'
say() { printf '[%(%F %T)T] job %s: %s\n' -1 "$job${variant:+ ($variant)}" "$*" || true; } # also on a full disk

# The last line of the log says why the script ended.
end() {  # end STATUS TEXT
  told=1
  say "$2"
  exit "$1"
}
give_up() { end "$1" "error: $2" >&2; }
on_exit() {
  [ -n "$told" ] || say "ended with status $1 $phase${2:+, at: $2}"
  [[ $1 != 0 || $phase != *reading* ]] || exit 65 # jobs that depend on this one must not start
}

ranks=        # the launcher's process, while it runs
warned=       # the signal that asked this job to stop
interrupted=  # a signal came while the shell waited
limit=        # seconds that the ranks may take; empty: no limit
ends=         # when the scheduler will end the job, in seconds since 1970; empty: unknown
early=        # the scheduler's warning comes at the start of this job, since its limit is too short
launched=0    # start time of the launcher, by SECONDS
launched_at=  # the same as date and time
introduced=   # whether the log says what runs
log_size=0    # of rank 0's log before the ranks start

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
  interrupted=1
  # Slurm may announce a preemption by the same signal (preempt_send_user_signal).
  if [ "$1" = USR1 ] && [ -n "$early" ] && early='' && read_job && [ -z "$(fact PreemptTime)" ]; then
    say "SIGUSR1: ignored this once"
    return 0
  fi
  warned=$1
  if [[ $phase == after* ]]; then say "SIG$1: the ranks have ended"; else say "SIG$1: asking the ranks to save and stop"; fi
  [ -z "$ranks" ] || ask_to_stop
}

# short_limit SECONDS: of a job so short that the scheduler's warning, sent so long before the end, comes at its start.
short_limit() {
  early=1
  [ "$warned" != USR1 ] || early='' warned=''
  say "the warning $1 s before the time limit comes at the start of this job: the first SIGUSR1 is ignored, and the ranks stop by themselves"
}

# Set before the launch: without traps a signal would end the shell. exec resets them.
trap_signals() {
  local name
  # shellcheck disable=SC2064
  for name in USR1 USR2 INT HUP TERM; do trap "pass_on $name" "$name"; done
  trap 'on_exit $? "$BASH_COMMAND"' EXIT
}
trap_signals

# --- the scheduler ---------------------------------------------------------------------------------------------------

# Variables of the submitter's shell that change the commands used here, or belong to a rank that submitted this job.
unset CDPATH GREP_OPTIONS POSIXLY_CORRECT ${SLURM_JOB_ID+SLURM_CLUSTERS} SLURM_TIME_FORMAT "${!SQUEUE_@}" "${!SINFO_@}" "${!SCONTROL_@}" \
  "${!OMPI_COMM_WORLD_@}" "${!PMI_@}" "${!PMIX_SERVER_@}" PMIX_RANK PMIX_NAMESPACE "${!OMPI_MCA_ess@}" "${!OMPI_MCA_orte_ess@}" \
  OMPI_MCA_orte_{hnp_uri,local_daemon_uri,launch,top_session_dir,jobfam_session_dir} OMPI_{UNIVERSE_SIZE,COMMAND,ARGV,FIRST_RANKS,FILE_LOCATION}
export -n SHELLOPTS BASHOPTS
export PATH # where a shell has none, bash keeps its own to itself
[ -n "${HOME:-}" ] || export HOME=~ # after sbatch --export=NIL; Open MPI 5 does not start without it
set +efknuv +o pipefail +o posix

# Slurm names its copy of a job script so; only that script is a job's own.
is_batch() { [[ $0 == */slurm_script ]]; }

# The scheduler of this job. Variables of another one's job may be inherited: then the nearest process above this one that belongs to a
# scheduler decides. Outside jobs, the commands that are here do. `under_launcher`: a launcher is above it.
find_scheduler() {
  local pid=$$ stat name found=()
  [ -z "${SLURM_JOB_ID:-}" ] || found+=(slurm)
  [ -z "${FLUX_ENCLOSING_ID:-}${FLUX_URI:-}" ] || found+=(flux)
  [ -z "${PBS_JOBID:-}" ] || found+=(pbs)
  [ -z "${LSB_JOBID:-}" ] || found+=(lsf)
  scheduler=slurm
  for name in flux:flux bsub:lsf qsub:pbs sbatch:slurm; do [ -z "$(type -P "${name%:*}")" ] || scheduler=${name#*:}; done
  scheduler=${found[0]:-$scheduler} name=
  while [[ ${#found[@]} -gt 0 && -z $name && $pid -gt 1 ]] && { read -r stat <"/proc/$pid/stat"; } 2>/dev/null; do
    case ${stat#*(} in
      mpirun* | mpiexec* | orte* | prte* | hydra_* | pmi_proxy* | jsm* | flux-shell*) under_launcher=1 ;;
      slurmstepd\)* | salloc\)*) name=slurm ;;
      flux-*) name=flux ;;
      pbs_mom\)*) name=pbs ;;
      sbatchd\)* | res\)*) name=lsf ;;
    esac
    read -r _ pid _ <<<"${stat##*) }"
  done
  [ ${#found[@]} -le 1 ] || scheduler=${name:-$scheduler}
  for name in "${found[@]}"; do
    [ "$name" != "$scheduler" ] || continue
    case $name in slurm) unset "${!SLURM_@}" ;; flux) unset "${!FLUX_@}" ;; pbs) unset "${!PBS_@}" ;; lsf) unset "${!LSB_@}" ;; esac
    foreign+=" $name"
  done
}

# What the file of a scheduler need not define.
why_not_here() { wrong_start; }
why_not_again() { told_to_end; }

# why_not_here where the scheduler does not tell.
wrong_start() {
  reason=
  if [ -n "$under_launcher" ]; then
    reason="a launcher of ranks has started this script; leave the launcher out: the script starts the ranks"
  elif [ -n "$in_shell" ] && [ -z "$interactive" ]; then
    reason="$0 runs in the shell of $in_shell; submit it, or start interactive.sh in this shell"
  fi
}

# why_not_again where the scheduler gives no reason for ending a job: before its time limit, a job was cancelled, or the
# scheduler will start it again by itself.
told_to_end() {
  local left now
  reason='' cause=''
  case $warned in '' | USR1 | USR2) return 0 ;; esac
  printf -v now '%(%s)T' -1
  if left=$(seconds_left); then ends=${left:+$((now + left))}; fi # the limit may have changed
  if [ -n "$ends" ] && [ "$now" -ge "$((ends - 60))" ]; then
    cause="time limit"
  else
    reason="it was told to end before its time limit (SIG$warned)"
  fi
}

# read_allocation's check where the scheduler tells nodes but not ranks.
require_ranks_a_node() {
  [[ ${ranks_a_node:-} =~ ^[1-9][0-9]*$ ]] ||
    give_up 64 "ranks_a_node='${ranks_a_node:-}' (this scheduler does not tell how many ranks a node gets); set it before load_machine"
}

# drop_variables NAME...: unsets them.
drop_variables() {
  local name told=
  for name in "$@"; do [ -z "${!name+set}" ] || { told+=" $name=${!name}" && unset "$name"; }; done
  [ -z "$told" ] || say "unset variables of another job:$told"
}

found_by="beside the script"
[[ ! ${BASH_SOURCE[0]%/*} -ef ${LOCKSTEP_SLURM:-} ]] || found_by=LOCKSTEP_SLURM
LOCKSTEP_SLURM=${BASH_SOURCE[0]%/*}
first_job=${LOCKSTEP_FIRST_JOB:-} # the first of the jobs of this run; not for jobs that are submitted from this one
unset LOCKSTEP_FIRST_JOB
job=none element='' foreign='' in_shell='' under_launcher=''
find_scheduler
# shellcheck source=schedulers/slurm.sh
source "$LOCKSTEP_SLURM/schedulers/$scheduler.sh"
[ -z "$foreign" ] || say "unset variables of another job, of:$foreign"
source "$LOCKSTEP_SLURM/machine.sh"
source "$LOCKSTEP_SLURM/resubmit.sh"
source "$LOCKSTEP_SLURM/spares.sh"

# --- the ranks -------------------------------------------------------------------------------------------------------

# ask COMMAND...: sets `answer` to its output and `status`. Repeated after a signal, which may have ended the command, too.
ask() {
  while
    interrupted='' status=0
    answer=$("$@") || status=$?
    [ -n "$interrupted" ]
  do :; done
}

program_version() { "${lockstep[@]}" --version 2>&1; }

# Sets `answer` to the program's version.
check_program() {
  ask program_version
  [ "$status" = 0 ] ||
    give_up 66 "cannot run '${lockstep[*]}' (status $status: ${answer##*$'\n'}); load the modules of lockstep and its MPI in $machine, or set lockstep=(PROGRAM) there"
}

# introduce COMMAND...: once, refuses a start that cannot succeed; then says what will run.
introduce() {
  local reason recipe
  [ -z "$introduced" ] || return 0
  introduced=1
  why_not_here
  [ -z "$reason" ] || give_up 64 "no ranks are started here: $reason"
  check_program
  recipe=$(printf '%s\n' "$@" | sed -n '/^--config$/{n;p;};s/^--config=//p' | tail -n 1)
  say "$answer ($(type -P "${lockstep[0]}")); job.sh of $LOCKSTEP_SLURM ($found_by); machine $machine ($chosen_by); $launcher; $nodes nodes x $ranks_a_node ranks x ${cores:-default} cores; recipe ${recipe:-none}"
}

# Sets `line` to the command that launches the ranks.
launch_line() {
  local on_nodes=()
  [ ${#chosen[@]} = 0 ] || place_ranks
  export LOCKSTEP_RANKS=$tasks # for the program, which else compares its ranks with those of the allocation
  case $launcher in
    srun) line=(srun --kill-on-bad-exit=1 "${on_nodes[@]}" "${srun_options[@]}" "$@") ;;
    # All ranks of a node see all of its cores and GPUs that the job has; flux_options and jsrun_options bind them to cores.
    flux) line=(flux run --nodes="$nodes" --tasks-per-node="$ranks_a_node" --exclusive "${flux_options[@]}" "$@") ;;
    jsrun) line=(jsrun --nrs="$nodes" --rs_per_host=1 --tasks_per_rs="$ranks_a_node" -c ALL_CPUS -g ALL_GPUS "${jsrun_options[@]}" "$@") ;;
    *) line=("$launcher" -n "$tasks" "${on_nodes[@]}" "${mpirun_options[@]}" "$@") ;;
  esac
}

# Runs the launcher in the background, so that the shell's traps run at once.
launch() {
  local - line
  set -euo pipefail
  introduce "$@"
  status=75 # if the signal came before the ranks had started; nothing is lost
  [ -z "$warned" ] || return 0
  launch_line "$@"
  if [ -n "$limit" ]; then line=(timeout --kill-after=30 "$limit" "${line[@]}"); fi
  launched=$SECONDS
  printf -v launched_at '%(%F %T)T' -1
  phase='while the ranks ran'
  "${line[@]}" &
  ranks=$!
  [ -z "$warned" ] || ask_to_stop  # the signal came before the launcher had started
  interrupted=$warned
  while
    status=0
    wait "$ranks" || status=$?
    [ -n "$interrupted" ]
  do interrupted=''; done
  ranks=
  phase="after the ranks, which ended with $status"
}

# --- the run ---------------------------------------------------------------------------------------------------------

# Sets run_dir from `training`. Each element of an array uses its number as the seed, and a separate directory.
resolve_run() {
  local -
  set -euo pipefail
  introduce "${training[@]}"
  use_stage
  ask "${lockstep[@]}" train "${training[@]}" --print-config
  [ "$status" = 0 ] || give_up "$status" "these options cannot be trained with: ${training[*]}"
  configuration=$answer
  run_dir=$(sed -n 's/^run-dir=//p' <<<"$configuration")
  [ -n "$run_dir" ] || run_dir=runs/$(sed -n 's/^model=//p' <<<"$configuration")
  if [ -n "$element" ] && [ -z "$variant" ]; then
    run_dir=${run_dir%/}-seed-$element
    training+=(--override --seed "$element" --run-dir "$run_dir")
  fi
  limit_time "$(sed -n 's/^time-limit=\([0-9]*\).*/\1/p' <<<"$configuration")"
  log_size=$(size_of_log)
  reserve_spares
}

# Adds --stage-dir if the machine has `stage`, unless the options set it or need no data.
use_stage() { [[ -z $stage || " ${training[*]} " =~ " --stage-dir"|" --synthetic " ]] || training+=(--stage-dir "$stage"); }

size_of_log() { stat -c %s "$run_dir/log/rank-00000.log" 2>/dev/null || echo 0; }

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
  training+=(--override --time-limit "${left}s")
}
