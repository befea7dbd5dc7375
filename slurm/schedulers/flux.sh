# shellcheck shell=bash disable=SC2034,SC2154
# Flux. A job has its own instance of Flux, to which commands without --parent refer. job.sh lists what each of these variables
# and functions means.

job=${FLUX_ENCLOSING_ID:-} # set since version 0.71
[ -n "$job" ] || job=$(flux getattr jobid 2>/dev/null) || job=none
own_launcher=flux
ways_again="flux batch does not work here"

read_allocation() {
  require_ranks_a_node
  nodes=$(flux resource list -n -o '{nnodes}') || nodes=
  [[ $nodes =~ ^[1-9][0-9]*$ ]] || give_up 66 "flux resource list says '$nodes' for the number of nodes; start this in a job of Flux"
  tasks=$((nodes * ranks_a_node))
  cores= # flux_options binds the ranks
}

# Without a limit, UINT_MAX.
seconds_left() {
  local left
  left=$(flux job timeleft 2>/dev/null) && [[ $left =~ ^[0-9]+$ ]] || return
  [ "$left" -ge 4294967295 ] || echo "$left"
}

# Flux ends a job by an exception of severity 0, which has a type and a note.
why_not_again() {
  local severity='' type='' note=''
  told_to_end
  IFS='|' read -r severity type note < <(flux --parent jobs -n -o '{exception.severity}|{exception.type}|{exception.note}' "$job" 2>/dev/null) || true
  if [ "$severity/$type" = 0/timeout ]; then cause="time limit" reason=''; elif [ "$severity" = 0 ]; then reason="Flux ended it ($type: $note)"; fi
}

# As a new job, since Flux requeues none.
submit_again() {
  local name='' queue='' bank='' duration='' successor
  # The command line of flux batch may have set these; the other options are those in the script.
  IFS='|' read -r name queue bank duration < <(flux --parent jobs -n -o '{name}|{queue}|{bank}|{duration}' "$job" 2>/dev/null) || true
  [[ $duration =~ [1-9] ]] || duration=
  successor=$(LOCKSTEP_SLURM=$LOCKSTEP_SLURM LOCKSTEP_FIRST_JOB=$first_job flux --parent batch "--dependency=afterany:$job" \
    "--nodes=$nodes" "--nslots=$tasks" ${name:+"--job-name=$name"} ${queue:+"--queue=$queue"} ${bank:+"--bank=$bank"} \
    ${duration:+"--time-limit=${duration}s"} "$0" "$@") || return 1
  say "submitted again as job $successor, which waits for this one to end"
}
