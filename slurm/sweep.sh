# shellcheck shell=bash disable=SC2034,SC2154
# Functions of sweep.sbatch; sourced by it after job.sh.

# read_sweep FILE [--max-parallel N] [OPTIONS...]: sets `sweep_file`, `max_parallel`, `lines` (those of FILE that hold options), and
# `common` to `training` and the other options.
read_sweep() {
  local - && set -euo pipefail
  sweep_file=${1:-} max_parallel='' common=("${training[@]}")
  [ -r "$sweep_file" ] ||
    give_up 66 "cannot read the sweep '$sweep_file' (a file with one line of options for each run); usage: bash slurm/sweep.sbatch FILE [--max-parallel N] [OPTIONS OF LOCKSTEP TRAIN...]"
  while shift && [ $# -gt 0 ]; do
    case $1 in
      --max-parallel) max_parallel=${2:-none} && shift ;;
      --max-parallel=*) max_parallel=${1#*=} ;;
      *) common+=("$1") ;;
    esac
  done
  [[ $max_parallel =~ ^([1-9][0-9]*)?$ ]] || give_up 64 "--max-parallel $max_parallel (not a number of runs); give a number from 1"
  case $(head -c 2 "$sweep_file" | od -An -tx1 | tr -d ' ') in
    fffe | feff) give_up 65 "$sweep_file is text in UTF-16 (UTF-8 is read); save it as UTF-8, such as: iconv -f UTF-16 -t UTF-8 $sweep_file" ;;
  esac
  # Windows' editors write a byte order mark and carriage returns, which are no part of an option.
  mapfile -t lines < <(LC_ALL=C sed $'1s/^\xEF\xBB\xBF//; s/\r$//' "$sweep_file" | grep -avE '^[[:space:]]*(#|$)')
  [ ${#lines[@]} -gt 0 ] || give_up 65 "no options in $sweep_file (one line for each run)"
}

# choose_line NUMBER: sets `line`, `training` to its options and those of all runs that it does not set, and `variant` to the name of
# its run: its own options, sorted. So no other line or file changes the name.
choose_line() {
  local - words word options=() && set -euo pipefail
  [ "$1" -le ${#lines[@]} ] || give_up 64 "element $1 of the array (the sweep $sweep_file has ${#lines[@]} lines)"
  line=${lines[$1 - 1]} training=("${common[@]}")
  read -ra words <<<"$line"
  for word in "${words[@]}"; do
    if [[ $word == --* || ${#options[@]} = 0 ]]; then
      drop_options "${word%%=*}"
      word=${word#--}
      options+=("${word/=/-}")
    else
      options[-1]+=-$word
    fi
  done
  training+=("${words[@]}")
  word=$(printf '%s\n' "${options[@]}" | LC_ALL=C sort | paste -sd _)
  variant=$(tr -c 'A-Za-z0-9.+_\n-' - <<<"$word")
  # A file name has at most 255 bytes. The checksum keeps names apart that lost something.
  [[ $variant == "$word" && ${#word} -le 200 ]] || variant=${variant:0:190}-$(sha256sum <<<"$word" | head -c 8)
}

# submit_sweep [OPTIONS...]: checks each line; then submits the job script as an array for the runs that have not finished, with a
# copy of their lines that later changes of the file do not reach; exits.
submit_sweep() {
  local - number line configuration base copy array again runs=() unfinished=()
  local -A known=() && set -euo pipefail
  ! is_batch || give_up 64 "this job is no element of an array (a sweep submits itself); start it by: bash slurm/sweep.sbatch ${sweep_file@Q}"
  check_program
  for ((number = 1; number <= ${#lines[@]}; ++number)); do
    choose_line "$number"
    [[ " $line" != *" --run-dir"* ]] || give_up 64 "'$line' in $sweep_file sets --run-dir (each run of a sweep gets a folder); remove it"
    configuration=$("${lockstep[@]}" train "${training[@]}" --print-config) || give_up $? "'$line' in $sweep_file cannot be trained with"
    again=${known[$variant]:-${known[$configuration]:-}}
    [ -z "$again" ] || give_up 65 "two lines of $sweep_file are the same run ('$again' and '$line'); remove one"
    known[$variant]=$line known[$configuration]=$line
    base=$(sed -n 's/^run-dir=//p' <<<"$configuration")
    base=${base:-runs/$(sed -n 's/^model=//p' <<<"$configuration")}
    # Finished, and not by an earlier end.
    if [[ $("${lockstep[@]}" watch "$base/$variant" --once --json 2>/dev/null) == *'"state":"finished"'* &&
      $(grep -E '^(epochs|max-steps)=' "$base/$variant/config.ini") == "$(grep -E '^(epochs|max-steps)=' <<<"$configuration")" ]]; then
      echo "already finished, not submitted: $base/$variant"
    else
      runs+=("  $base/$variant") unfinished+=("$line")
    fi
  done
  if [ ${#runs[@]} -gt 0 ]; then
    # Others may write to the directory: the copy is a new file, whatever they have put there.
    copy=$base/$(mktemp -u .sweep-XXXXXXXXXX)
    mkdir -p "$base" || give_up 73 "cannot make $base"
    printf '%s\n' "${unfinished[@]}" | dd of="$copy" conv=excl status=none || give_up 73 "cannot copy $sweep_file to $copy"
    array=$(
      # Those of an allocation that this shell is in would reach the jobs, and srun there.
      [ -z "${SLURM_JOB_ID:-}" ] || for name in "${!SLURM_@}"; do [[ $name == SLURM_@(CONF|PMIX_*) ]] || unset "$name"; done
      sbatch --parsable --array="1-${#runs[@]}${max_parallel:+%$max_parallel}" "$0" "$(realpath "$copy")" "$@"
    ) || give_up $? "sbatch has failed"
    printf '%s\n' "array $array:" "${runs[@]}"
  fi
  echo "compare them by: lockstep compare $base/*, or lockstep report $base/*"
  told=1
  exit 0
}
