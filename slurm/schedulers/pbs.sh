# shellcheck shell=bash disable=SC2034,SC2154
# OpenPBS and PBS Professional. job.sh lists what each of these variables and functions means.

# qsub -V passes the submitter's variables on; PBS_JOBID is this job's. A job that follows an array's element has the first one's number.
job=${PBS_JOBID:-none}
[[ ! "$job $first_job" =~ \[([0-9]+)\] ]] || element=${BASH_REMATCH[1]}
[[ $job == *\[* ]] || drop_variables "${!PBS_ARRAY_@}"
[ "${PBS_ENVIRONMENT:-}" != PBS_INTERACTIVE ] || in_shell="qsub -I"
# PBS starts job scripts in the home directory.
[ -n "$in_shell" ] || cd "$PBS_O_WORKDIR" || give_up 66 "cannot enter PBS_O_WORKDIR='$PBS_O_WORKDIR'; submit from a directory that compute nodes have"
own_launcher=mpirun
ways_again="qsub does not work here"

# The file has a line for each rank (mpiprocs). PBS sets OMP_NUM_THREADS to ompthreads.
read_allocation() {
  [ -r "${PBS_NODEFILE:-}" ] || give_up 66 "PBS_NODEFILE='${PBS_NODEFILE:-}' cannot be read; start this in a job of PBS"
  nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
  tasks=$(wc -l <"$PBS_NODEFILE")
  ranks_a_node=$(((tasks + nodes - 1) / nodes))
  cores=${OMP_NUM_THREADS:-}
}

# Sets `facts` to the job's attributes, one NAME=VALUE a line; or to the error.
ask_pbs() {
  facts=$(qstat -f -F dsv "$job" 2>&1) || return
  facts=${facts//|/$'\n'}
}

fact() { sed -n "s/^$1=//p" <<<"$facts"; }

seconds_left() {
  local walltime started now
  ask_pbs || return
  walltime=$(fact 'Resource_List\.walltime') && [ -n "$walltime" ] || return 0
  [[ $walltime =~ ^([0-9]+):([0-9]+):([0-9]+)$ ]] || return
  walltime=$((10#${BASH_REMATCH[1]} * 3600 + 10#${BASH_REMATCH[2]} * 60 + 10#${BASH_REMATCH[3]}))
  printf -v now '%(%s)T' -1
  started=$(fact stime)
  [[ -n $started ]] && started=$(date -d "$started" +%s) || started=$((now - SECONDS))
  echo $((walltime - (now - started)))
}

why_not_again() {
  told_to_end
  [ -n "$reason" ] || ! ask_pbs || [ "$(fact Rerunable)" != False ] || reason="it was submitted with -r n"
}

# As a new job, since only operators may use qrerun.
submit_again() {
  type -P qsub >/dev/null || return 1
  local name value successor
  # -V: with this job's environment, in which PBS replaces its own variables.
  local options=(-V -N "$PBS_JOBNAME" -q "$PBS_O_QUEUE")
  # qsub's command line may have set these; the other options are those in the script.
  ask_pbs || true
  for name in select place walltime; do value=$(fact "Resource_List\\.$name") && options+=(${value:+-l "$name=$value"}); done
  value=$(fact Account_Name) && options+=(${value:+-A "$value"})
  value=$(fact project) && [ "$value" = _pbs_project_default ] || options+=(${value:+-P "$value"})
  # qsub refuses to wait for one element of an array.
  if [[ $job == *\[* ]]; then options+=(-a "$(date -d '+2 minutes' +%Y%m%d%H%M.%S)"); else options+=(-W "depend=afterany:$job"); fi
  successor=$(cd "$PBS_O_WORKDIR" &&
    LOCKSTEP_SLURM=$LOCKSTEP_SLURM LOCKSTEP_FIRST_JOB=$first_job qsub "${options[@]}" "$0") || return 1
  say "submitted again as job $successor, which starts after this one has ended"
  for value in $(fact depend | grep -oE 'beforeok:[^,]*' | tr : '\n' | sed '/^beforeok$/d; s/@.*//'); do
    say "job $value waits for this one to succeed, so PBS deletes it; submit it again with: qsub -W depend=afterok:$successor"
  done
}
