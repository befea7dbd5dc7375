# shellcheck shell=bash disable=SC2034,SC2154
# Slurm; also used outside jobs. job.sh says what each of these variables and functions means.

own_launcher=srun
first_job= # a requeued job keeps its number
ways_again="scontrol requeue does not work here"
facts=  # Slurm's record of this job, as `scontrol -o show job` prints it; empty: Slurm has not told
restarts_before=${SLURM_RESTART_COUNT:-0} # of this job's starts
output_begin=0 # where in this script's output the ranks' last launch begins
memory_told= # Slurm's record says so of an earlier start or launch, and keeps it

# read_job SECONDS...: sets `facts`, or `answer` to the error. A busy controller is asked again after each pause. Slurm may end this job
# meanwhile, but scontrol ignores SIGTERM.
read_job() {
  local pause
  for pause in "$@" 0; do
    answer=$(trap '' TERM && scontrol -o show job "$SLURM_JOB_ID" 2>&1) &&
      facts=$(grep "^JobId=$SLURM_JOB_ID " <<<"$answer") && facts=" ${facts/ JobName=* UserId=/ UserId=} " && return 0 # within a trap, plain return is a failure
    [[ ! $answer =~ "Invalid job id"|"configuration source"|"not found" ]] || break
    sleep "$pause" || true
  done
  facts=
  return 1
}

# fact NAME: nothing if Slurm tells none, however it writes that.
fact() {
  [[ $facts =~ " $1="([^ ]*) ]] || return 0
  case ${BASH_REMATCH[1]} in '(null)' | N/A | None | Unknown) ;; *) echo "${BASH_REMATCH[1]}" ;; esac
}

megabytes() { [ -z "$(fact "$1")" ] || echo $(($(fact "$1" | LC_ALL=C numfmt --from=iec) >> 20)); }
seconds() { [ -z "$1" ] || date -d "$1" +%s 2>/dev/null || true; }

# sbatch passes the submitter's environment on. Of that, srun, MPI and this script would obey what describes another job or step.
drop_foreign_variables() {
  local name value threads a_node a_socket a_core gpus='(Tres[A-Za-z]*|TRES)=[^ ]*gpu' wrong=() # ReqTRES, TresPerNode ...
  IFS=: read -r a_node _ a_socket a_core <<<"$(fact NtasksPerN:B:S:C)"
  threads=$(fact ReqB:S:C:T)
  while IFS='=' read -r name value; do
    [[ ${!name-$value} == "$value" || ($name == *GPU* && ,$value, == *[,:/=]"${!name}",*) ]] || wrong+=("$name")
  done <<END
SLURM_ARRAY_JOB_ID=$(fact ArrayJobId)
SLURM_ARRAY_TASK_ID=$(fact ArrayTaskId)
SLURM_NTASKS=$(fact NumTasks)
SLURM_NPROCS=$(fact NumTasks)
SLURM_NTASKS_PER_NODE=$a_node
SLURM_NTASKS_PER_SOCKET=$a_socket
SLURM_NTASKS_PER_CORE=$a_core
SLURM_THREADS_PER_CORE=${threads##*:}
SLURM_TRES_PER_TASK=$(fact TresPerTask)
SLURM_GPU_BIND=$(fact TresBind)
SLURM_NTASKS_PER_GPU=$(fact NtasksPerTRES)
SLURM_NTASKS_PER_TRES=$(fact NtasksPerTRES)
SLURM_CPUS_PER_TASK=$(fact CPUs/Task)
SLURM_CPUS_PER_GPU=$(fact CpusPerTres)
SLURM_MEM_PER_NODE=$(megabytes MinMemoryNode)
SLURM_MEM_PER_CPU=$(megabytes MinMemoryCPU)
SLURM_MEM_PER_GPU=$(fact MemPerTres)
SLURM_GPUS=$(fact TresPerJob)
SLURM_GPUS_PER_NODE=$(fact TresPerNode)
SLURM_GPUS_PER_SOCKET=$(fact TresPerSocket)
SLURM_GPUS_PER_TASK=$(fact TresPerTask)
SLURM_JOB_ACCOUNT=$(fact Account)
SLURM_JOB_QOS=$(fact QOS)
SLURM_JOB_RESERVATION=$(fact Reservation)
SLURM_RESTART_COUNT=$(fact Restarts)
END
  [ -n "$(fact ArrayTaskId)" ] || wrong+=("${!SLURM_ARRAY_@}")
  [ -n "$(fact HetJobId)" ] || mapfile -t -O ${#wrong[@]} wrong < <(compgen -v | grep "^SLURM_.*HET_")
  [[ $facts =~ $gpus ]] || wrong+=(${SLURM_JOB_GPUS+CUDA_VISIBLE_DEVICES} SLURM_JOB_GPUS SLURM_STEP_GPUS SLURM_GPUS_ON_NODE)
  if [ ! -r "${SLURM_HOSTFILE:-}" ]; then
    wrong+=(SLURM_HOSTFILE)
    [[ ${SLURM_DISTRIBUTION:-} != arbitrary* ]] || wrong+=(SLURM_DISTRIBUTION)
  fi
  # A job script runs in no step of srun, and these options of srun are none of sbatch's.
  ! is_batch || wrong+=(${SLURM_STEP_ID+SLURM_DISTRIBUTION} "${!SLURM_STEP@}" "${!SLURM_SRUN_@}" "${!SLURM_CPU_BIND@}" "${!SLURM_MEM_BIND@}"
    SLURM_CONSTRAINT SLURM_CORE_SPEC SLURM_THREAD_SPEC SLURM_EXACT SLURM_EXCLUSIVE SLURM_NO_KILL SLURM_PARTITION SLURM_TIMELIMIT SLURM_WHOLE)
  drop_variables "${wrong[@]}"
}

why_not_here() {
  reason=
  if is_batch; then
    return 0
  elif [[ ${SLURM_STEP_ID:-} =~ ^[0-9]{1,9}$ ]]; then
    reason="this is step $SLURM_JOB_ID.$SLURM_STEP_ID of srun, in which no other can start; leave out srun"
  elif [ "$job" = none ]; then
    reason="there is no job (SLURM_JOB_ID is not set); give job scripts to sbatch, or start interactive.sh in the shell of salloc"
  elif [[ -z $facts && $answer == *"Invalid job id"* ]] || [[ -n $facts && ! $(fact JobState) =~ ^(RUNNING|SUSPENDED)$ ]]; then
    reason="job $SLURM_JOB_ID (SLURM_JOB_ID) has ended; open another shell, or unset SLURM_JOB_ID"
  elif [[ -n $facts && $(fact UserId) != *"($EUID)" ]]; then
    reason="job $SLURM_JOB_ID (SLURM_JOB_ID) is that of $(fact UserId); unset SLURM_JOB_ID"
  elif [ -z "$interactive" ]; then
    reason="$0 was not started by sbatch; give it to sbatch, or start interactive.sh in this allocation"
  fi
}

# However the job was requested; ranks may be unevenly spread over nodes.
read_allocation() {
  nodes=${SLURM_JOB_NUM_NODES:-1}
  tasks=$(fact NumTasks)
  tasks=${tasks:-${SLURM_NTASKS:-$((nodes * ${SLURM_NTASKS_PER_NODE:-1}))}}
  ranks_a_node=$(((tasks + nodes - 1) / nodes))
  cores=${SLURM_CPUS_PER_TASK:-}
}

# --- spare nodes: see spares.sh ---

# Slurm removes a dead node from a job that was submitted with --no-kill.
allocated_nodes() {
  local facts answer list
  read_job || true
  list=$(fact NodeList)
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
    done' "$SLURMD_NODENAME" "$job" </dev/null >/dev/null 2>&1 &
}

# The program itself asks Slurm.
seconds_left() { :; }

end_of_output() { stat -Lc %s "/proc/$$/fd/2" 2>/dev/null || echo 0; }

# slurmstepd_says COMMAND: applies sed's COMMAND to what Slurm has written to this script's output; prints its last result.
slurmstepd_says() { [ ! -f "/proc/$$/fd/2" ] || tail -c "+$((output_begin + 1))" "/proc/$$/fd/2" 2>/dev/null | grep -a '^slurmstepd' | sed -n "$1" | tail -n 1; }

# In the job's details as the pseudo-signal 125, or, if Slurm watches memory without control groups, in words.
ran_out_of_memory() {
  [ -z "$(slurmstepd_says '/exceeded memory limit\|[Oo][Oo][Mm].kill event/p')" ] || return 0
  [[ -z $memory_told && $(scontrol -d -o show job "$job" 2>/dev/null) =~ \ DerivedExitCode=[0-9]+:125\  ]]
}

# While this script runs, a job that Slurm ends or restarts is completing; slurmstepd writes why to the script's output.
why_not_again() {
  reason='' cause=''
  read_job 1 2 4 8 16 32 64 || { reason="Slurm does not answer: $answer"; return 0; }
  cause=$(slurmstepd_says 's/.* CANCELLED AT .* DUE TO \(.*\) \*\*\*.*/\L\1/p')
  [ -z "$(fact PreemptTime)" ] || cause=preemption
  if [ -z "$cause" ] && ran_out_of_memory; then cause="out of memory" memory_told=1; fi
  output_begin=$(end_of_output)
  case $(fact JobState)/$(fact Reason) in
    RUNNING/* | STOPPED/* | SIGNALING/* | RESIZING/* | */TimeLimit) ;;
    */*held*) reason="Slurm holds it until: scontrol release $job" ;;
    *)
      if was_requeued; then
        reason="Slurm restarts it"
      elif [ "$cause" != preemption ]; then
        cause=${cause:-cancellation$(by_whom)} reason="it was cancelled"
      fi
      ;;
  esac
  [ -n "$reason" ] || [ "$(fact Requeue)" != 0 ] || reason="it was submitted with --no-requeue (or without --requeue, where JobRequeue=0)"
}

was_requeued() { [ "$(fact Restarts)" -gt "$restarts_before" ]; }

# As far as Slurm's accounting tells.
by_whom() {
  local state
  state=$(timeout 10 sacct -X -n -P -o State -j "$job" 2>/dev/null) || true
  [[ ! $state =~ \ by\ ([0-9]+) ]] || echo " by $(id -nu "${BASH_REMATCH[1]}" 2>/dev/null || echo "user ${BASH_REMATCH[1]}")"
}

# Under the same number, with all options, so that jobs which depend on this one go on waiting. Slurm ends this script at once, including the
# scontrol command itself, unless that ignores SIGTERM.
submit_again() {
  (trap '' TERM && scontrol requeue "$job") || return 1
  ! read_job 1 2 4 || was_requeued || return 1
  say "requeued; Slurm restarts it in about two minutes"
}

# Slurm sets SLURM_JOB_ID in each job. An array's elements have names of their own: the last one's SLURM_JOB_ID is also the whole array's.
if [ -n "${SLURM_JOB_ID:-}" ]; then
  job=$SLURM_JOB_ID
  # shellcheck disable=SC2046
  if read_job 1 2 4 $([ -z "${SLURM_ARRAY_TASK_ID:-}" ] || echo 8 16 32 64); then
    [ -z "$(fact ArrayTaskId)" ] || job=$(fact ArrayJobId)_$(fact ArrayTaskId)
    ! is_batch || element=$(fact ArrayTaskId)
    drop_foreign_variables
    restarts_before=$(fact Restarts) output_begin=$(end_of_output) ends=$(seconds "$(fact EndTime)")
    [ "$restarts_before" = 0 ] || ! ran_out_of_memory || memory_told=1
    [ -z "$(fact HetJobId)" ] || say "warning: of a heterogeneous job, only the component of this script runs ranks"
    ! is_batch || warning=$(sed -n 's/^#SBATCH .*--signal=[^ ]*@\([0-9]*\).*/\1/p' "$0")
    # Slurm sends it up to a minute early.
    [[ -z ${warning:-} || -z $ends ]] || [ $((ends - $(seconds "$(fact StartTime)"))) -gt $((warning + 120)) ] || short_limit "$warning"
  elif is_batch; then
    [ -z "${SLURM_ARRAY_TASK_ID:-}" ] ||
      give_up 70 "SLURM_ARRAY_TASK_ID=$SLURM_ARRAY_TASK_ID, but Slurm does not tell whether this job is that element (scontrol: $answer); submit it again"
    say "warning: Slurm does not answer (scontrol: $answer); variables of other jobs would go unnoticed"
  fi
fi
