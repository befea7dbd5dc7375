# shellcheck shell=bash disable=SC2015,SC2034,SC2154
# The settings of the machine; sourced by job.sh.

# Variables that a machine's file may set, with defaults for a plain cluster.
default_settings() {
  launcher=$own_launcher   # srun, mpirun (or mpiexec), flux or jsrun; mpirun also where srun and MPI have no common PMI
  srun_options=(--mpi=pmix)
  mpirun_options=auto      # or a list of options that place the ranks; auto: chosen by mpirun's MPI
  flux_options=(-o cpu-affinity=per-task)
  jsrun_options=auto       # or a list of options that bind the ranks; auto: each to its share of the node's cores
  lockstep=(lockstep)      # with its wrapper, if any: (apptainer exec lockstep.sif lockstep)
  scratch=${SCRATCH:-$PWD} # where data and runs are
  recipes=$LOCKSTEP_SLURM/../recipes # configurations for --config
  stage=                   # node-local storage for copies of shards; empty: none
  max_restarts=50          # per submission, by these scripts; Slurm's own do not count. 0: never submit again. LOCKSTEP_MAX_RESTARTS has precedence
  stalled_restarts=1       # consecutive restarts without a newer checkpoint
  crash_restarts=2         # restarts after a rank crashed or ran out of memory, which seldom help
  spare_nodes=${LOCKSTEP_SPARE_NODES:-}   # restart within the job, and keep so many of its nodes for that; empty: requeue the job
  min_nodes=${LOCKSTEP_MIN_NODES:-}       # with spare_nodes: when none is left, continue on so few nodes; empty: requeue the job
  replace_slow=${LOCKSTEP_REPLACE_SLOW:-} # with spare_nodes: 1: a restart also replaces nodes that the program calls slow
}

# This function and source_machine have no local variables, which a machine's file would set instead of the shell's.
load_machine() {
  local -
  set -euo pipefail
  # Sets variables that a machine's file may read: nodes, tasks, ranks_a_node, cores.
  read_allocation
  default_settings
  find_machine "${1:-}"
  declare -gA variables=()
  for exported_name in $(compgen -v); do variables[$exported_name]=${!exported_name-}; done
  phase="while reading $machine"
  source_machine
  phase='before the ranks were started'
  trap_signals
  unset_functions
  check_settings
  max_restarts=${LOCKSTEP_MAX_RESTARTS:-$max_restarts}
  [[ "$max_restarts $stalled_restarts $crash_restarts" =~ ^[0-9]+\ [0-9]+\ [0-9]+$ ]] ||
    give_up 64 "max_restarts=$max_restarts stalled_restarts=$stalled_restarts crash_restarts=$crash_restarts (of $machine, or LOCKSTEP_MAX_RESTARTS): give numbers"
  case $launcher in
    srun | flux) ;;
    mpirun | mpiexec) resolve_mpirun ;;
    jsrun) [ "${jsrun_options[*]-}" != auto ] || jsrun_options=(--bind="packed:${cores:-1}") ;;
    *) give_up 64 "launcher=$launcher in $machine (only srun, mpirun, mpiexec, flux and jsrun are known); set one of them" ;;
  esac
  # After sbatch --export=NONE srun, also mpirun's, passes nothing on. Since 22.05 it does not inherit a rank's cores from the job.
  export SLURM_EXPORT_ENV=ALL
  srun_options=(--export=ALL ${cores:+--cpus-per-task="$cores"} "${srun_options[@]}")
  # The program of the tree to which this file belongs.
  if [[ ${lockstep[*]} == lockstep ]] && ! type -P lockstep >/dev/null && [ -x "$LOCKSTEP_SLURM/../../../bin/lockstep" ]; then
    lockstep=("$(cd "$LOCKSTEP_SLURM/../../../bin" && pwd)/lockstep")
  fi
}

# find_machine NAME: sets `machine` to its file, and `chosen_by`. A site's own directory survives new versions of Lockstep.
find_machine() {
  site=${LOCKSTEP_SITE:-/etc/lockstep} machine=${1:-${LOCKSTEP_MACHINE:-}} chosen_by=${LOCKSTEP_MACHINE:+LOCKSTEP_MACHINE}
  [ "$machine" = "${LOCKSTEP_MACHINE:-}" ] || chosen_by='line 2'
  if [ -z "$machine" ]; then
    machine=generic chosen_by='no other is named'
    [ ! -e "$site/default.env" ] || machine=default chosen_by="the site's default"
  fi
  if [[ $machine != */* ]]; then
    if [ -e "$site/$machine.env" ]; then machine=$site/$machine.env; else machine=$LOCKSTEP_SLURM/machines/$machine.env; fi
  fi
  [[ -f $machine && -r $machine ]] ||
    give_up 66 "cannot read the machine's file $machine ($chosen_by); there are: $(cd "$LOCKSTEP_SLURM/machines" && echo *.env); in $site: $(cd "$site" 2>/dev/null && echo *.env)"
  ! grep -q $'\r$' "$machine" || give_up 65 "$machine has the line ends of Windows; convert it: sed -i 's/\\r$//' $machine"
  "$BASH" -n "$machine" || give_up 65 "$machine is not in bash's language; correct the line above"
}

# As at the start of a shell, with any status. Sets `exported` to the names of the variables that the file has exported.
source_machine() {
  local -
  set +euo pipefail
  # shellcheck source=/dev/null
  source "$machine"
  IFS=$' \t\n' exported=()
  for exported_name in $(compgen -e); do
    [ "${!exported_name}" = "${variables[$exported_name]-${!exported_name}x}" ] || is_in "$exported_name" PWD OLDPWD SHLVL _ ||
      exported+=("$exported_name")
  done
  set_names=$(compgen -v) declared=$(local)
  for exported_name in "${exported[@]}"; do declare -gx "$exported_name=${!exported_name}"; done # `declare -x` makes local ones
}

# Refuses misspelt settings, and reports other variables that are none.
check_settings() {
  local name near settings others=()
  settings=$(declare -f default_settings | sed -n 's/^ *\([a-z_]*\)=.*/\1/p')
  for name in $settings; do
    [[ " ${declared//$'\n'/ }" != *" $name="* ]] || give_up 65 "$machine declares '$name' (which makes it local there); write $name=... without declare or typeset"
  done
  for name in $set_names; do
    # What is this script's own gets its value back.
    if [[ $name =~ ^[a-z] && ${!name-} != "${variables[$name]-${!name-}}" ]] &&
      ! is_in "$name" "${settings//$'\n'/ }" nodes tasks ranks_a_node cores phase told warned interrupted early name near settings others; then
      printf -v "$name" %s "${variables[$name]}"
      others+=("$name")
    fi
    [[ $name =~ ^[a-z][a-z0-9_]*$ && -z ${variables[$name]+set} ]] && ! is_in "$name" set_names declared exported exported_name "${exported[@]}" || continue
    # Within two edits.
    near=$(awk -v a="$name" 'function least(x, y) { return x < y ? x : y } {
      for (i = 0; i <= length(a); ++i) for (j = 0; j <= length($1); ++j)
        d[i, j] = !(i && j) ? i + j : least(least(d[i - 1, j], d[i, j - 1]) + 1, d[i - 1, j - 1] + (substr(a, i, 1) != substr($1, j, 1)))
      if (d[length(a), length($1)] <= (length($1) < 7 ? 1 : 2)) print $1 }' <<<"$settings")
    # What a file that it sources has set is not misspelt here.
    [ -z "$near" ] || ! grep -qE "(^|[^A-Za-z0-9_])$name=" "$machine" || give_up 64 "$machine sets '$name', which is no setting; did you mean '${near%%$'\n'*}'? Correct it, or unset it there"
    others+=("$name")
  done
  [ ${#others[@]} = 0 ] || say "warning: $machine sets variables that are no settings: ${others[*]} (settings: ${settings//$'\n'/ })"
}

# Sets `launcher` to mpiexec if there is no mpirun, and `mpirun_options` if the machine's file does not: as many ranks per
# node as requested, each on separate cores.
resolve_mpirun() {
  local version cores=${cores:-1}
  type -P "$launcher" >/dev/null || launcher=mpiexec
  type -P "$launcher" >/dev/null ||
    give_up 66 "neither mpirun nor mpiexec is in PATH (an MPI's module may not be loaded); load it in the machine's file $machine"
  version=$("$launcher" --version 2>&1 || true)
  if [ "${mpirun_options[*]-}" = auto ]; then
    case $version in
      *"Open MPI"* | *OpenRTE* | *PRRTE*) mpirun_options=(--map-by "ppr:$ranks_a_node:node:pe=$cores" --bind-to core) ;;
      *"Intel(R) MPI"*) # binds by itself; in a job it obeys -ppn only with this variable
        mpirun_options=(-ppn "$ranks_a_node")
        export I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=off
        ;;
      *HYDRA*) mpirun_options=(-ppn "$ranks_a_node" -bind-to "core:$cores") ;; # MPICH, MVAPICH
      *)
        say "warning: $launcher is of an unknown MPI; ranks are placed by its defaults (set mpirun_options to change this)"
        mpirun_options=()
        ;;
    esac
  fi
  # Daemons that PBS starts on other nodes do not have the machine's variables; other MPIs pass all on.
  [[ ! $version =~ Open\ MPI|OpenRTE|PRRTE ]] || for exported_name in "${exported[@]}"; do mpirun_options+=(-x "$exported_name"); done
}
