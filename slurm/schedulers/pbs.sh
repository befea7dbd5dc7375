# shellcheck shell=bash disable=SC2034,SC2154
# OpenPBS and PBS Professional. job.sh lists what each of these variables and functions means.

job=${PBS_JOBID:-none}
element=${LOCKSTEP_ELEMENT:-${PBS_ARRAY_INDEX:-}} # LOCKSTEP_ELEMENT: one that was submitted again, as a job without an array
own_launcher=mpirun
ways_again="qsub does not work here"

job_name() { echo "$job"; }

# The file has a line for each rank (mpiprocs). PBS sets OMP_NUM_THREADS to ompthreads.
read_allocation() {
  [ -r "${PBS_NODEFILE:-}" ] || give_up 66 "PBS_NODEFILE='${PBS_NODEFILE:-}' cannot be read; start this in a job of PBS"
  nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
  tasks=$(wc -l <"$PBS_NODEFILE")
  ranks_a_node=$(((tasks + nodes - 1) / nodes))
  cores=${OMP_NUM_THREADS:-}
}

# Sets `facts` to the job's attributes, one NAME=VALUE a line.
ask_pbs() { facts=$(qstat -f -F dsv "$job" 2>/dev/null | tr '|' '\n'); }

fact() { sed -n "s/^$1=//p" <<<"$facts"; }

seconds_left() {
  local facts walltime started now hours minutes seconds
  ask_pbs || return
  walltime=$(fact 'Resource_List\.walltime')
  [ -n "$walltime" ] || return 0
  [[ $walltime =~ ^([0-9]+):([0-9]+):([0-9]+)$ ]] || return
  hours=${BASH_REMATCH[1]} minutes=${BASH_REMATCH[2]} seconds=${BASH_REMATCH[3]}
  printf -v now '%(%s)T' -1
  started=$(fact stime)
  [[ -n $started ]] && started=$(date -d "$started" +%s) || started=$((now - SECONDS))
  echo $((10#$hours * 3600 + 10#$minutes * 60 + 10#$seconds - (now - started)))
}

ran_out_of_memory() { return 1; }

why_not_again() { told_to_end; }

# As a new job, since only operators may use qrerun.
submit_again() {
  command -v qsub >/dev/null || return 1
  local facts='' name value successor
  # -V: with this job's environment, in which PBS replaces its own variables.
  local options=(-V -N "$PBS_JOBNAME" -q "$PBS_O_QUEUE")
  # qsub's command line may have set these; the other options are those in the script.
  ask_pbs || true
  for name in select place walltime; do
    value=$(fact "Resource_List\\.$name")
    [ -z "$value" ] || options+=(-l "$name=$value")
  done
  value=$(fact Account_Name)
  [ -z "$value" ] || options+=(-A "$value")
  value=$(fact project)
  [[ -z $value || $value == _pbs_project_default ]] || options+=(-P "$value")
  case $job in
    *\[*) options+=(-a "$(date -d '+2 minutes' +%Y%m%d%H%M.%S)") ;; # qsub refuses to wait for one element of an array
    *) options+=(-W "depend=afterany:$job") ;;
  esac
  [ -z "$element" ] || export LOCKSTEP_ELEMENT=$element
  successor=$(cd "$PBS_O_WORKDIR" &&
    LOCKSTEP_SLURM=$LOCKSTEP_SLURM LOCKSTEP_FIRST_JOB=$first_job qsub "${options[@]}" "$0") || return 1
  say "submitted again as job $successor, which starts after this one has ended"
}
