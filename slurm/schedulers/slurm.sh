# shellcheck shell=bash disable=SC2034,SC2154
# Slurm; also used outside jobs. job.sh lists what each of these variables and functions means.

job=${SLURM_JOB_ID:-none}
element=${SLURM_ARRAY_TASK_ID:-}
own_launcher=srun
signals=(USR1 TERM)
ways_again="neither scontrol requeue nor sbatch works here"

# Names an element of an array separately: the last element's SLURM_JOB_ID is also that of the whole array.
job_name() {
  if [ -n "$element" ]; then
    echo "${SLURM_ARRAY_JOB_ID}_$element"
  else
    echo "$SLURM_JOB_ID"
  fi
}

# However the job was requested; ranks may be unevenly spread over nodes.
read_allocation() {
  nodes=${SLURM_JOB_NUM_NODES:-1}
  tasks=${SLURM_NTASKS:-$((nodes * ${SLURM_NTASKS_PER_NODE:-1}))}
  ranks_a_node=$(((tasks + nodes - 1) / nodes))
  cores=${SLURM_CPUS_PER_TASK:-}
}

# --- spare nodes: see spares.sh ---

# Slurm removes a dead node from a job that was submitted with --no-kill.
allocated_nodes() {
  local list
  list=$(scontrol -o show job "$(job_name)" 2>/dev/null | sed -n 's/.* NodeList=\([^ ]*\) .*/\1/p') || true
  scontrol show hostnames "${list:-${SLURM_JOB_NODELIST:-}}"
}

# A state that ends with * is that of a node that does not respond.
unhealthy_nodes() {
  sinfo -h -N -n "$(joined "$@")" -o '%N %T' 2>/dev/null | awk '$2 ~ /[*]|down|drain|fail|unk|error|inval/ { print $1 }' | sort -u || true
}

# The step of ranks that are lost with their node holds its resources until Slurm gives up the node; hence --overlap.
# --wait counts from the first node's answer.
answering_nodes() {
  local more=$(($# / 50))
  timeout $((60 + more)) srun --overlap --mpi=none --nodes=$# --ntasks=$# --ntasks-per-node=1 --nodelist="$(joined "$@")" --wait=$((5 + more)) \
    printenv SLURMD_NODENAME 2>/dev/null </dev/null || true
}

# With --no-kill a job stays when the node of its script dies. Slurm notices that after SlurmdTimeout.
guard() {
  # shellcheck disable=SC2016
  srun --overlap --mpi=none --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist="$1" bash -c '
    while sleep 10; do
      [[ $(scontrol -o show node "$0" 2>/dev/null) != *" State=DOWN"* ]] || scontrol requeue "$1" || scancel "$1"
    done' "$SLURMD_NODENAME" "$(job_name)" </dev/null >/dev/null 2>&1 &
}

# The program itself asks Slurm.
seconds_left() { :; }

# srun returns 1, and the job's details have the pseudo-signal 125.
ran_out_of_memory() {
  command -v scontrol >/dev/null &&
    [[ $(scontrol -d -o show job "$(job_name)" 2>/dev/null) =~ \ DerivedExitCode=[0-9]+:125\  ]]
}

# Sets `facts` to the job's state and Slurm's reason for it, or to the error if Slurm does not answer. A controller that is
# busy or restarting is asked again for two minutes, unless Slurm kills this job before.
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

# A job cancelled by its user is ending, like one at its time limit, but Slurm gives no reason for it; one that Slurm will
# restart by itself is already pending.
why_not_again() {
  local facts
  reason=
  if command -v scontrol >/dev/null || command -v squeue >/dev/null; then
    ask_slurm || { reason="Slurm does not answer: $facts"; return; }
  elif [ "$warned" = TERM ]; then
    facts="told to end"
  else
    return 0  # no Slurm command to ask
  fi
  case $facts in
    RUNNING* | *" TimeLimit") ;;
    PENDING* | REQUEUED*) reason="Slurm restarts it ($facts)" ;;
    *) reason="it was cancelled ($facts)" ;;
  esac
}

# Requeued by Slurm, or, if that is impossible, as a new job.
submit_again() {
  # Slurm ends this job at once, including the scontrol command itself, unless that ignores SIGTERM.
  if command -v scontrol >/dev/null && (trap '' TERM && scontrol requeue "$(job_name)"); then
    say "requeued; Slurm restarts it in about two minutes"
    return
  fi
  command -v sbatch >/dev/null || return 1
  local successor name value time='' gres=''
  local options=(--parsable "--dependency=afterany:$(job_name)" "--job-name=$SLURM_JOB_NAME"
    "--nodes=$SLURM_JOB_NUM_NODES" "--partition=$SLURM_JOB_PARTITION")
  # No environment variable contains these two.
  read -r time gres < <(squeue -h -j "$(job_name)" -o '%l %b' 2>/dev/null) || true
  [[ ! $time =~ ^([0-9:-]+|UNLIMITED)$ ]] || options+=("--time=$time")
  for name in NTASKS NTASKS_PER_NODE CPUS_PER_TASK GPUS GPUS_PER_NODE GPUS_PER_SOCKET GPUS_PER_TASK MEM_PER_CPU MEM_PER_GPU; do
    value=SLURM_$name
    name=${name,,}
    [ -z "${!value:-}" ] || options+=("--${name//_/-}=${!value}")
  done
  # It also includes GPUs requested by --gpus-per-node. Newer Slurms write gres/gpu:4 where 22.05 writes gres:gpu:4.
  gres=${gres//gres[:\/]/}
  [[ -z $gres || $gres == N/A || $gres == "(null)" || -n ${SLURM_GPUS_PER_NODE:-} ]] || options+=("--gres=$gres")
  [ -z "${SLURM_MEM_PER_NODE:-}" ] || options+=("--mem=$SLURM_MEM_PER_NODE")
  [ -z "${SLURM_JOB_RESERVATION:-}" ] || options+=("--reservation=$SLURM_JOB_RESERVATION")
  [ -z "${SLURM_JOB_ACCOUNT:-}" ] || options+=("--account=$SLURM_JOB_ACCOUNT")
  [ -z "${SLURM_JOB_QOS:-}" ] || options+=("--qos=$SLURM_JOB_QOS")
  [ -z "$element" ] || options+=("--array=$element")
  [ -z "$wanted" ] || options+=(--no-kill)
  successor=$(LOCKSTEP_SLURM=$LOCKSTEP_SLURM LOCKSTEP_FIRST_JOB=$first_job sbatch "${options[@]}" "$0" "$@") || return 1
  say "submitted again as job $successor, which waits for this one to end"
}
