# shellcheck shell=bash disable=SC2034,SC2046,SC2154
# What follows when the ranks have ended; sourced by job.sh. `lockstep restart` decides by the run directory, and counts the restart there.

# finish RUN_DIR [ARGUMENTS OF THE JOB SCRIPT...]
finish() {
  local - run_dir=$1 ending reported cause reason why here newly_left_out allowed verdict resumes unlogged may_lack_memory in_job unreachable suspect repeated slow
  set -euo pipefail
  first_job=${first_job:-$job}
  shift
  while
    check_restart
    newly_left_out=() here=
    if [[ -n $wanted && -n $in_job && -z $warned ]] && restarts_here; then here=--in-job; fi
    ask_restart --record $here ${suspect:+--named="$suspect"} ${newly_left_out:+--left-out="$(joined "${newly_left_out[@]}")"}
    [ -n "$allowed" ] || give_up "$status" "$why$verdict; not submitted again"
    say "$why$verdict"
    [ -n "$here" ]
  do launch_again; done
  submit_again "$@" || say "cannot submit the job again ($ways_again); submit the same command again"
  told=1 && exit "$status"
}

# Returns if the run may be restarted after `status`; else ends the script.
check_restart() {
  reason='' cause='' reported=$status ending=(--job "$first_job" --log-bytes "$log_size" ${warned:+--asked-to-stop} --max-restarts "$max_restarts"
    --stalled-restarts "$stalled_restarts" --crash-restarts "$crash_restarts" ${restarted:+--relaunched "$restarted"})
  # mpirun's 0 may not mean success, nor srun's with spare nodes, where it does not wait for all ranks.
  [[ $launcher == srun && -z $wanted ]] || ending+=(--require-end)
  ask_restart ${wanted:+--since "$launched_at"}
  [ "$status" != 0 ] || end 0 "done"
  [[ $reported != 0 || -z $unlogged ]] || say "the launcher reports success, but no rank has started"
  [ -z "$resumes" ] || why_not_again
  why="status $status${cause:+ ($cause)}"
  if [ "$cause" = preemption ]; then ending+=(--preempted) && ask_restart; fi
  [[ -z $cause || $cause == "out of memory" ]] || in_job='' # the job itself is ending
  [ -z "$reason" ] || end "$status" "$why; not submitted again: $reason"
  [ -z "$unlogged" ] || ! launcher_fails ||
    give_up "$status" "$why: the launcher starts no program with these options, though all nodes answer (line above: ${line[*]}); correct srun_options or mpirun_options in $machine; not submitted again"
  [ -n "$allowed" ] || give_up "$status" "$why$verdict; not submitted again"
  [[ -z $may_lack_memory || $cause != "out of memory" ]] || ending+=(--out-of-memory)
}

# ask_restart OPTION...: sets the variables that `lockstep restart` prints. No signal ends it, since it may already have counted the restart.
ask_restart() {
  local answer name value
  verdict='' suspect='' unreachable='' repeated='' slow=''
  answer=$(trap '' USR1 USR2 INT HUP TERM && "${lockstep[@]}" restart "$run_dir" --values --status "$status" "${ending[@]}" "$@" 2>&1) || true
  while IFS='=' read -r name value; do
    case $name in status | allowed | verdict | resumes | unlogged | may_lack_memory | in_job | unreachable | suspect | repeated | slow) printf -v "$name" %s "$value" ;; esac
  done <<<"$answer"
  [ -n "$verdict" ] || give_up $((status ? status : 70)) "status $status: cannot decide on a restart (${answer##*$'\n'}); not submitted again"
}

# Whether the launcher cannot start even `true` with these options, though the nodes start processes.
launcher_fails() {
  [ "$status" = 1 ] && declare -F answering_nodes >/dev/null || return 1
  launch_line true
  ! timeout 60 "${line[@]}" </dev/null || return 1
  [ "$(answering_nodes $(allocated_nodes) | sort -u | wc -l)" = "$(allocated_nodes | wc -l)" ]
}
