# shellcheck shell=bash disable=SC2034,SC2154
# What follows when the ranks have ended; sourced by job.sh.

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
  local - run_dir=$1 log=$1/restarts where restarts cause reason
  set -euo pipefail
  first_job=${first_job:-$job}
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
  told=1
  exit "$status"
}

# count CONDITION: the restarts of this submission for which awk's CONDITION holds.
count() { awk -v job="$first_job" -v now="$checkpoint" "\$1 == job && ($1) { ++n } END { print n + 0 }" "$log"; }

# Returns if the run may be restarted after `status`; else ends the script.
check_restart() {
  local stalled crashes logged=1 why=
  [ "$(size_of_log)" != "$log_size" ] || logged=
  if [ "$status" = 0 ] && [ -z "$warned$logged" ]; then
    say "the launcher reports success, but no rank has started"
    status=70
  fi
  # mpirun may return 0 although the ranks were stopped (MPICH's after a signal that it forwarded, Open MPI 5's after a SIGTERM
  # that Slurm sent only to the ranks) or lost with their node (Open MPI 5's). With spare nodes, srun does not wait for all ranks.
  if [ "$status" = 0 ] && { [ "$launcher" != srun ] || [ -n "$wanted" ]; } && ! is_complete; then
    status=70
    if logged 'stopped (on request|before the time limit) at step'; then status=75; fi
  fi
  [ "$status" != 0 ] || end 0 "done"
  goes_on "$status" || is_of_restart ||
    give_up "$status" "the same command cannot resume after status $status (docs/exit-status.md); not submitted again"
  why_not_again
  why="status $status${cause:+ ($cause)}"
  [ -z "$reason" ] || end "$status" "$why; not submitted again: $reason"
  [ "$max_restarts" != 0 ] || end "$status" "$why; not submitted again: max_restarts=0 (LOCKSTEP_MAX_RESTARTS, or $machine)"
  crash='' unlogged=''
  if crashed "$status"; then crash=crash; fi
  if [ -z "$logged$warned" ] && [ "$status" != 75 ]; then
    unlogged=unlogged
    ! launcher_fails || give_up "$status" "$why: the launcher starts no program with these options, though all nodes answer (line above: ${line[*]}); correct srun_options or mpirun_options in $machine; not submitted again"
  fi
  checkpoint=$(newest_checkpoint "$run_dir")
  mkdir -p "$run_dir"
  append_to "$log" </dev/null || give_up "$status" "cannot count restarts in $log; not submitted again"
  restarts=$(count 1)
  stalled=$(awk -v job="$first_job" -v now="$checkpoint" '$1 == job { n = $3 == now ? n + 1 : 0 } END { print n + 0 }' "$log")
  [ "$restarts" -lt "$max_restarts" ] ||
    give_up "$status" "$why after $restarts restarts (max_restarts=$max_restarts); not submitted again"
  [ -z "$unlogged" ] || [ "$(count '/ unlogged/')" = 0 ] ||
    give_up "$status" "$why: again no rank has written to its log; not submitted again"
  [ "$stalled" -le "$stalled_restarts" ] ||
    give_up "$status" "$why and still at checkpoint $checkpoint after $stalled restarts (stalled_restarts=$stalled_restarts); not submitted again"
  crashes=$(count '/ crash/')
  [ -z "$crash" ] || [ "$crashes" -lt "$crash_restarts" ] ||
    give_up "$status" "$why: a rank crashed or ran out of memory again, after $crashes restarts for that reason (crash_restarts=$crash_restarts); not submitted again"
}

# Whether the launcher cannot start even `true` with these options, though the nodes start processes.
launcher_fails() {
  [ "$status" = 1 ] && declare -F answering_nodes >/dev/null || return 1
  local allocated=()
  launch_line true
  ! timeout 60 "${line[@]}" </dev/null || return 1
  mapfile -t allocated < <(allocated_nodes)
  [ "$(answering_nodes "${allocated[@]}" | sort -u | wc -l)" = ${#allocated[@]} ]
}

# record_restart WORD...: one line: the submission, the status, the newest checkpoint, the time, `crash` if that was the cause, and
# the words that are not empty.
record_restart() {
  local word line
  printf -v line '%s %s %s %(%FT%T)T' "$first_job" "$status" "$checkpoint" -1
  for word in "$crash" "$unlogged" "$@"; do line+=${word:+ $word}; done
  append_to "$log" <<<"$line" || give_up "$status" "cannot count restarts in $log; not submitted again"
  say "status $status${cause:+ ($cause)} at checkpoint $checkpoint: restart $((restarts + 1)) of at most $max_restarts"
}
