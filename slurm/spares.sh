# shellcheck shell=bash disable=SC2034,SC2046,SC2154
# Restarts within a job, on its spare nodes; sourced by job.sh. docs/slurm.md explains them. A scheduler has them if its file defines
#   allocated_nodes          prints the nodes that the job still has, one a line
#   unhealthy_nodes NODE...  prints those that are down, failing, drained or silent, as far as the scheduler knows
#   answering_nodes NODE...  prints those where the scheduler can start a process now
#   guard NODE               on NODE, in the background: requeues the job if the node of this script dies

wanted=       # nodes for the ranks; empty: no restarts within this job
chosen=()     # nodes of the ranks; empty: all nodes of the job
left_out=()   # nodes that this job no longer uses
guarded_from= # node where the guard runs
restarted=    # whether the ranks were restarted within this job: on the same number of nodes, or on fewer

is_in() { [[ " ${*:2} " == *" $1 "* ]]; }
joined() { (IFS=, && echo "$*"); }

# without ARRAY NODE...: prints the nodes that are not in it.
without() {
  local -n others=$1; local node
  for node in "${@:2}"; do is_in "$node" "${others[@]}" || echo "$node"; done
}

# Sets `chosen`, `nodes` and `tasks` if the machine's file sets spare_nodes.
reserve_spares() {
  [ -n "$spare_nodes" ] || return 0
  declare -F allocated_nodes >/dev/null || give_up 64 "spare_nodes=$spare_nodes ($scheduler has no restarts within a job); unset it"
  [[ $spare_nodes =~ ^[0-9]+$ && $spare_nodes -lt $nodes ]] ||
    give_up 64 "spare_nodes=$spare_nodes of $nodes nodes (the ranks need at least one); request more nodes, or set fewer spare ones"
  wanted=$((nodes - spare_nodes))
  [[ ${min_nodes:-1} =~ ^[1-9][0-9]*$ && ${min_nodes:-1} -le $wanted ]] ||
    give_up 64 "min_nodes=$min_nodes (the ranks have $wanted nodes); set 1 to $wanted, or nothing"
  [[ $launcher == srun || $("$launcher" --version 2>&1 || true) =~ Open\ MPI|OpenRTE|PRRTE ]] ||
    give_up 64 "spare_nodes=$spare_nodes with launcher=$launcher (restarts within a job need srun or Open MPI's mpirun); unset it"
  choose_nodes || give_up 66 "Slurm lists fewer nodes of this job than the $wanted for its ranks; submit it again"
  keep_global_batch
  start_guard
}

# Chooses the nodes of the ranks: as many as wanted, or at least min_nodes; else fails.
choose_nodes() {
  local left=() new=() picked=() i
  mapfile -t left < <(without left_out $(allocated_nodes))
  # The nodes used so far may have copies of shards. The script runs on the first node, which is used last.
  mapfile -t new < <(without chosen "${left[@]}")
  mapfile -t picked < <(without new "${left[@]}")
  for ((i = ${#new[@]} - 1; i >= 0 && ${#picked[@]} < wanted; --i)); do picked+=("${new[i]}"); done
  spares=$((${#left[@]} - ${#picked[@]}))
  [ ${#picked[@]} -ge "${min_nodes:-$wanted}" ] || return 1
  # In the order of Slurm's list, in which Open MPI expects them.
  mapfile -t new < <(without picked "${left[@]}")
  mapfile -t chosen < <(without new "${left[@]}")
  nodes=${#chosen[@]} tasks=$((${#chosen[@]} * ranks_a_node))
}

# Sets `on_nodes` to the launcher's options for the chosen nodes. A step whose ranks are lost with their node holds its resources
# until Slurm gives up the node; hence --overlap, for mpirun's own srun as a variable. Without --wait, srun would wait as long.
place_ranks() {
  on_nodes=("--nodes=$nodes" "--ntasks=$tasks" "--ntasks-per-node=$ranks_a_node" "--nodelist=$(joined "${chosen[@]}")" --overlap --wait=10)
  [ "$launcher" != srun ] || return 0
  export SLURM_OVERLAP=1
  on_nodes=(--host "$(joined "${chosen[@]/%/:$ranks_a_node}")")
}

# On a node of the ranks other than the script's.
start_guard() {
  [ -z "$guarded_from" ] || ! is_in "$guarded_from" "${chosen[@]}" || return 0
  for guarded_from in "${chosen[@]}" ''; do [ "$guarded_from" = "${SLURMD_NODENAME:-}" ] || break; done
  [ -z "$guarded_from" ] || guard "$guarded_from"
}

# leave_out REASON NODE...
leave_out() {
  local node
  for node in $(without left_out "${@:2}"); do
    left_out+=("$node") newly_left_out+=("$node")
    say "leaving out $node: $1"
  done
}

leave_out_if_spare() { ! is_in "$2" "${chosen[@]}" || ! choose_nodes || [ "$spares" = 0 ] || leave_out "$@"; }

# Leaves out the nodes that cannot be used; and, while there are spare ones, those named at two restarts, and slow ones. Then chooses.
restarts_here() {
  local all=() usable=() answering=() node
  mapfile -t all < <(allocated_nodes)
  # Slurm may already have removed a dead node from the job.
  leave_out "$scheduler has removed it from the job" $(without all "${chosen[@]}")
  leave_out "$scheduler reports it as down, failing, drained or silent" $(unhealthy_nodes "${all[@]}")
  for node in ${unreachable//,/ }; do ! is_in "$node" "${all[@]}" || leave_out "the other ranks get no answer from it" "$node"; done
  mapfile -t usable < <(without left_out "${all[@]}")
  mapfile -t answering < <(answering_nodes "${usable[@]}")
  [ ${#answering[@]} -gt 0 ] || { say "warning: $scheduler starts no process on any of the nodes" && answering=("${usable[@]}"); }
  leave_out "$scheduler cannot start a process on it" $(without answering "${usable[@]}")
  for node in ${repeated//,/ }; do leave_out_if_spare "its ranks were named at an earlier restart, too" "$node"; done
  [ -z "$replace_slow" ] || for node in ${slow//,/ }; do leave_out_if_spare "it is slow" "$node"; done
  choose_nodes || { say "too few nodes are left for a restart within this job (${min_nodes:-$wanted} are needed)" && return 1; }
}

launch_again() {
  restarted=$([ "$nodes" -lt "$wanted" ] && echo fewer || echo same)
  say "restarting within this job on $(joined "${chosen[@]}")"
  start_guard
  keep_global_batch
  log_size=$(size_of_log)
  launch "${lockstep[@]}" train "${training[@]}"
}

# A resumed run keeps its global batch on any number of ranks. One without a checkpoint would use a smaller one on fewer ranks.
keep_global_batch() {
  [ "$nodes" -lt "$wanted" ] || return 0
  local batch
  batch=$("${lockstep[@]}" restart "$run_dir" --ranks $((wanted * ranks_a_node)) $(sed -nE 's/^(batch-size|global-batch-size|accumulate)=/--&/p' <<<"$configuration"))
  [ -z "$batch" ] || training+=(--override --global-batch-size "$batch")
}
