# shellcheck shell=bash disable=SC2034,SC2154
# Restarts within a job, on its spare nodes; sourced by job.sh. docs/slurm.md explains them. The scheduler's file defines
#
#   allocated_nodes          prints the nodes that the job still has, one a line
#   unhealthy_nodes NODE...  prints those that are down, failing, drained or silent, as far as the scheduler knows
#   answering_nodes NODE...  prints those where the scheduler can start a process now
#   guard NODE               on NODE, in the background: requeues the job if the node of this script dies
#
# A scheduler without them has no restarts within a job.

wanted=      # nodes for the ranks; empty: no restarts within this job
chosen=()    # nodes of the ranks; empty: all nodes of the job
left_out=()  # nodes that this job no longer uses
guarded_from= # node where the guard runs
restarted=   # whether the ranks were restarted within this job

is_in() { [[ " ${*:2} " == *" $1 "* ]]; }

joined() {
  local IFS=,
  echo "$*"
}

# Sets `chosen`, `nodes` and `tasks` if the machine's file sets spare_nodes.
reserve_spares() {
  [ -n "$spare_nodes" ] || return 0
  declare -F allocated_nodes >/dev/null ||
    give_up 64 "spare_nodes=$spare_nodes ($scheduler has no restarts within a job); unset it"
  { [[ $spare_nodes =~ ^[0-9]+$ ]] && [ "$spare_nodes" -lt "$nodes" ]; } ||
    give_up 64 "spare_nodes=$spare_nodes of $nodes nodes (the ranks need at least one); request more nodes, or set fewer spare ones"
  wanted=$((nodes - spare_nodes))
  { [[ ${min_nodes:-1} =~ ^[1-9][0-9]*$ ]] && [ "${min_nodes:-1}" -le "$wanted" ]; } ||
    give_up 64 "min_nodes=$min_nodes (the ranks have $wanted nodes); set 1 to $wanted, or nothing"
  case $launcher in
    srun) ;;
    *) [[ $("$launcher" --version 2>&1 || true) =~ Open\ MPI|OpenRTE|PRRTE ]] ||
      give_up 64 "spare_nodes=$spare_nodes with launcher=$launcher (restarts within a job need srun or Open MPI's mpirun); unset it" ;;
  esac
  global_batch=$(global_batch_of_options $((wanted * ranks_a_node)))
  choose_nodes || give_up 66 "Slurm lists fewer nodes of this job than the $wanted for its ranks; submit it again"
  keep_global_batch
  start_guard
}

# Chooses the nodes of the ranks: as many as wanted, or at least min_nodes; else fails.
choose_nodes() {
  local all=() left=() picked=() node i
  mapfile -t all < <(allocated_nodes)
  for node in "${all[@]}"; do is_in "$node" "${left_out[@]}" || left+=("$node"); done
  # The nodes used so far may have copies of shards. The script runs on the first node, which is used last.
  for node in "${chosen[@]}"; do ! is_in "$node" "${left[@]}" || picked+=("$node"); done
  for ((i = ${#left[@]} - 1; i >= 0 && ${#picked[@]} < wanted; --i)); do
    is_in "${left[i]}" "${picked[@]}" || picked+=("${left[i]}")
  done
  spares=$((${#left[@]} - ${#picked[@]}))
  [ ${#picked[@]} -ge "${min_nodes:-$wanted}" ] || return 1
  # In the order of Slurm's list, in which Open MPI expects them.
  chosen=()
  for node in "${left[@]}"; do ! is_in "$node" "${picked[@]}" || chosen+=("$node"); done
  nodes=${#chosen[@]} tasks=$((${#chosen[@]} * ranks_a_node))
}

# Sets `on_nodes` to the launcher's options for the chosen nodes. A step whose ranks are lost with their node holds its resources
# until Slurm gives up the node; hence --overlap, for mpirun's own srun as a variable. Without --wait, srun would wait as long.
place_ranks() {
  if [ "$launcher" = srun ]; then
    on_nodes=("--nodes=$nodes" "--ntasks=$tasks" "--ntasks-per-node=$ranks_a_node"
      "--nodelist=$(joined "${chosen[@]}")" --overlap --wait=10)
  else
    export SLURM_OVERLAP=1
    on_nodes=(--host "$(joined "${chosen[@]/%/:$ranks_a_node}")")
  fi
}

# On a node of the ranks other than the script's.
start_guard() {
  local node
  [ -z "$guarded_from" ] || ! is_in "$guarded_from" "${chosen[@]}" || return 0
  for node in "${chosen[@]}"; do
    if [ "$node" != "${SLURMD_NODENAME:-}" ]; then
      guarded_from=$node
      guard "$node"
      return
    fi
  done
}

# Prints the hosts that more than half of the ranks' logs name since the launch, by a rank that PATTERN says something about. The
# ranks on a node that is cut off name all the others, but they are few.
named_hosts() {
  # Not as arguments: the names of thousands of logs may exceed the limit of a command line. Files as is_own_file accepts them.
  find "$run_dir/log" -name 'rank-*.log' -type f -links 1 2>/dev/null | awk -v since="$launched_at" -v pattern="^ $1" '
    BEGIN { while ((getline name <"-") > 0) ARGV[ARGC++] = name }
    FNR == 1 { ++file }
    $1 " " $2 < since { next }
    !(file in recent) { recent[file]; ++logs }
    {
      rest = $0
      while (match(rest, /rank [0-9]+ \([^)]*\)/)) {
        host = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        sub(/^[^(]*\(/, "", host)
        sub(/[,)].*/, "", host)
        if (rest ~ pattern && !((file, host) in seen)) {
          seen[file, host]
          ++votes[host]
        }
      }
    }
    END { for (host in votes) if (2 * votes[host] > logs) print host }' || true
}

# Prints the hosts that rank 0 has called slow since the launch.
slow_hosts() {
  log_from 0 | awk -v since="$launched_at" '$1 " " $2 >= since && / is slow: .*--exclude=/ { sub(/.*--exclude=/, ""); sub(/[^0-9A-Za-z_.,-].*/, ""); print }' |
    tr , '\n' | sort -u || true
}

# leave_out REASON NODE...
leave_out() {
  local node reason=$1
  shift
  for node in "$@"; do
    is_in "$node" "${left_out[@]}" && continue
    left_out+=("$node")
    newly_left_out+=("$node")
    say "leaving out $node: $reason"
  done
}

# Leaves out the nodes that cannot be used; and, while there are spare ones, those named at two restarts, and slow ones.
leave_out_nodes() {
  local all=() usable=() answering=() node
  mapfile -t all < <(allocated_nodes)
  # Slurm may already have removed a dead node from the job.
  for node in "${chosen[@]}"; do is_in "$node" "${all[@]}" || leave_out "$scheduler has removed it from the job" "$node"; done
  # shellcheck disable=SC2046
  leave_out "$scheduler reports it as down, failing, drained or silent" $(unhealthy_nodes "${all[@]}")
  for node in $(named_hosts 'is gone \(its node does not answer'); do
    ! is_in "$node" "${all[@]}" || leave_out "the other ranks get no answer from it" "$node"
  done
  for node in "${all[@]}"; do is_in "$node" "${left_out[@]}" || usable+=("$node"); done
  mapfile -t answering < <(answering_nodes "${usable[@]}")
  if [ ${#answering[@]} = 0 ]; then
    say "warning: $scheduler starts no process on any of the nodes"
  else
    for node in "${usable[@]}"; do
      is_in "$node" "${answering[@]}" || leave_out "$scheduler cannot start a process on it" "$node"
    done
  fi
  mapfile -t named < <(named_hosts '(is gone|has been late|has waited by itself|was last heard of|holds other parameters)')
  for node in "${named[@]}"; do
    ! was_named "$node" || leave_out_if_spare "its ranks were named at an earlier restart, too" "$node"
  done
  [ -z "$replace_slow" ] || for node in $(slow_hosts); do leave_out_if_spare "it is slow" "$node"; done
}

leave_out_if_spare() {
  is_in "$2" "${chosen[@]}" && choose_nodes && [ "$spares" -gt 0 ] || return 0
  leave_out "$1" "$2"
}

was_named() {
  awk -v job="$first_job" -v host="$1" '
    $1 == job {
      for (i = 5; i <= NF; ++i) if ($i ~ "^named=" && index("," substr($i, 7) ",", "," host ",")) found = 1
    }
    END { exit !found }' "$run_dir/restarts"
}

# Whether the ranks can be restarted within this job; chooses their nodes. A run that stopped on request (75) frees the nodes.
restarts_here() {
  newly_left_out=() named=()
  [ -n "$wanted" ] && [ -z "$warned" ] && [ "$status" != 75 ] && goes_on "$status" || return 1
  leave_out_nodes
  choose_nodes && return
  say "too few nodes are left for a restart within this job (${min_nodes:-$wanted} are needed)"
  return 1
}

# Whether the status comes from a restart within this job, and not from the run: the global batch cannot be divided over fewer
# ranks, or the lock of the previous ranks was still held. A requeued job has neither problem.
is_of_restart() {
  [ -n "$restarted" ] || return 1
  case $status in
    64) [ "$nodes" -lt "$wanted" ] ;;
    73) ;;
    *) return 1 ;;
  esac
}

launch_again() {
  restarted=1
  say "restarting within this job on $(joined "${chosen[@]}")"
  start_guard
  free_lock
  keep_global_batch
  log_size=$(size_of_log)
  launch "${lockstep[@]}" train "${training[@]}"
}

# The lock of ranks on another node would count as held for a minute after their last sign of life. An empty file is free.
free_lock() {
  local lock=$run_dir/lock
  if is_own_file "$lock" && grep -q "\"Slurm job $job\"" "$lock" 2>/dev/null && flock --nonblock "$lock" true 2>/dev/null; then
    dd if=/dev/null of="$lock" oflag=nofollow,nonblock status=none
  fi
}

# global_batch_of_options RANKS: of a run that has no checkpoint
global_batch_of_options() {
  awk -F= -v ranks="$1" '
    $1 == "batch-size" { size = $2 }
    $1 == "global-batch-size" { all = $2 }
    $1 == "accumulate" { micro_steps = $2 }
    END { print(all > 0 ? all : (size > 0 ? size : 32) * ranks * micro_steps) }' <<<"$configuration"
}

# A resumed run keeps its global batch on any number of ranks. One without a checkpoint would use a smaller one on fewer ranks.
keep_global_batch() {
  [ "$nodes" -lt "$wanted" ] && [ "$(newest_checkpoint "$run_dir")" = none ] || return 0
  drop_options --batch-size --global-batch-size
  training+=(--global-batch-size "$global_batch")
}
