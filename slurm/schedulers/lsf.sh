# shellcheck shell=bash disable=SC2034,SC2154
# Spectrum LSF, also with IBM's Job Step Manager (jsrun). job.sh lists what each of these variables and functions means.

# bsub passes the submitter's variables on, but LSF sets both of these in each job; the index is 0 if there is no array.
job=${LSB_JOBID:-none}
[ "${LSB_JOBINDEX:-0}" = 0 ] || element=$LSB_JOBINDEX job+="[$LSB_JOBINDEX]"
[[ ${LSB_INTERACTIVE:-} != Y || ! -t 0 ]] || in_shell="bsub -Is" # a job that is submitted there inherits the variable, but no terminal
own_launcher=mpirun
[ -z "$(type -P jsrun)" ] || own_launcher=jsrun
ways_again="brequeue does not work here"

# By this file Open MPI places one rank a slot, on the first nodes, whatever its options say.
[ "$own_launcher" = jsrun ] || unset LSB_AFFINITY_HOSTFILE

why_not_here() {
  wrong_start
  [[ -n $reason || ! $(bjobs -noheader -o stat "$job" 2>&1) =~ DONE|EXIT|not\ found ]] || reason="job $job (LSB_JOBID) has ended; open another shell"
}

# The variable has the slots of each node: node1 32 node2 32. A slot is a core.
read_allocation() {
  local hosts i
  require_ranks_a_node
  read -ra hosts <<<"${LSB_MCPU_HOSTS:-}"
  # The Job Step Manager lists the node where this script runs, but starts no ranks there.
  [ "$own_launcher" != jsrun ] || hosts=("${hosts[@]:2}")
  nodes=$((${#hosts[@]} / 2))
  [ "$nodes" -gt 0 ] || give_up 66 "LSB_MCPU_HOSTS='${LSB_MCPU_HOSTS:-}' names no node; start this in a job of LSF"
  tasks=$((nodes * ranks_a_node))
  cores=${hosts[1]}
  for ((i = 3; i < ${#hosts[@]}; i += 2)); do cores=$((hosts[i] < cores ? hosts[i] : cores)); done
  cores=$((cores > ranks_a_node ? cores / ranks_a_node : 1))
}

# Answers such as `0:12 L` (hours, minutes), or `-` without a limit.
seconds_left() {
  local left
  left=$(bjobs -noheader -o time_left "$job" 2>/dev/null) || return
  if [[ $left =~ ^[[:space:]]*([0-9]+):([0-9]+)(:([0-9]+))? ]]; then
    echo $((10#${BASH_REMATCH[1]} * 3600 + 10#${BASH_REMATCH[2]} * 60 + 10#${BASH_REMATCH[4]:-0}))
  else
    [[ $left =~ ^[[:space:]]*- ]]
  fi
}

# With the same number, options and environment. LSF ends this job at once, including the brequeue command itself, unless that
# ignores the signals.
submit_again() {
  type -P brequeue >/dev/null && (trap '' INT TERM && brequeue "$job") || return 1
  say "requeued"
}
