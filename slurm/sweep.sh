# shellcheck shell=bash disable=SC2034,SC2154
# Functions of sweep.sbatch; sourced by it after job.sh.

# read_sweep FILE [--max-parallel N] [OPTIONS...]: sets `sweep_file`, `max_parallel`, `lines` (those of FILE that hold options) and
# `names` (of their runs: the options that are not the same on all lines), and `common` to `training` and the other options.
read_sweep() {
  sweep_file=${1:-} max_parallel='' common=("${training[@]}")
  [ -r "$sweep_file" ] ||
    give_up 66 "cannot read the sweep '$sweep_file' (a file with one line of options for each run); usage: bash slurm/sweep.sbatch FILE [--max-parallel N] [OPTIONS OF LOCKSTEP TRAIN...]"
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --max-parallel) max_parallel=${2:-none} && shift ;;
      --max-parallel=*) max_parallel=${1#*=} ;;
      *) common+=("$1") ;;
    esac
    shift
  done
  [[ $max_parallel =~ ^([1-9][0-9]*)?$ ]] || give_up 64 "--max-parallel $max_parallel (not a number of runs); give a number from 1"
  case $(head -c 2 "$sweep_file" | od -An -tx1 | tr -d ' ') in
    fffe | feff) give_up 65 "$sweep_file is text in UTF-16 (UTF-8 is read); save it as UTF-8, such as: iconv -f UTF-16 -t UTF-8 $sweep_file" ;;
  esac
  # Windows' editors write a byte order mark and carriage returns, which are no part of an option.
  mapfile -t lines < <(LC_ALL=C sed $'1s/^\xEF\xBB\xBF//; s/\r$//' "$sweep_file" | grep -vE '^[[:space:]]*(#|$)')
  [ ${#lines[@]} -gt 0 ] || give_up 65 "no options in $sweep_file (one line for each run)"
  mapfile -t names < <(printf '%s\n' "${lines[@]}" | name_lines)
  local twice
  twice=$(printf '%s\n' "${names[@]}" | sort | uniq -d | head -n 1)
  [ -z "$twice" ] || give_up 65 "two lines of $sweep_file are the same run ($twice); remove one"
}

# Prints a name for each line of options: lr-0.1_weight-decay-1e-4.
name_lines() {
  awk '
    {
      options[NR] = 0
      for (i = 1; i <= NF; ++i) {
        if ($i !~ /^--/) continue
        option = substr($i, 3)
        if (!index(option, "=") && i < NF && $(i + 1) !~ /^--/) option = option "=" $(++i)
        option_of[NR, ++options[NR]] = option
        ++lines_with[option]
      }
    }
    END {
      for (line = 1; line <= NR; ++line) {
        name = ""
        for (i = 1; i <= options[line]; ++i) {
          option = option_of[line, i]
          if (lines_with[option] < NR || NR == 1) name = name (name == "" ? "" : "_") option
        }
        sub(/^$/, "defaults", name)
        gsub(/[^A-Za-z0-9.+_-]+/, "-", name)
        print substr(name, 1, 200)
      }
    }'
}

# choose_variant NUMBER: sets `variant` to the name of the line with this number, and `training` to its options and those of all runs
# that it does not set.
choose_variant() {
  local options option
  [ "$1" -le ${#lines[@]} ] || give_up 64 "element $1 of the array (the sweep $sweep_file has ${#lines[@]} lines)"
  variant=${names[$1 - 1]}
  read -ra options <<<"${lines[$1 - 1]}"
  training=("${common[@]}")
  for option in "${options[@]}"; do
    [[ $option != --* ]] || drop_options "${option%%=*}"
  done
  training+=("${options[@]}")
}

# submit_sweep [OPTIONS...]: checks each line; then submits the job script as an array, with a copy of the file that later changes
# of the file do not reach; exits.
submit_sweep() {
  local number configuration base copy array
  for ((number = 1; number <= ${#lines[@]}; ++number)); do
    choose_variant "$number"
    [[ " ${lines[number - 1]}" != *" --run-dir"* ]] ||
      give_up 64 "'${lines[number - 1]}' in $sweep_file sets --run-dir (each run of a sweep gets a folder); remove it"
    configuration=$("${lockstep[@]}" train "${training[@]}" --print-config) ||
      give_up $? "'${lines[number - 1]}' in $sweep_file cannot be trained with"
  done
  base=$(sed -n 's/^run-dir=//p' <<<"$configuration")
  base=${base:-runs/$(sed -n 's/^model=//p' <<<"$configuration")}
  # Others may write to the directory: the copy is a new file, whatever they have put there.
  copy=$base/$(mktemp -u .sweep-XXXXXXXXXX)
  mkdir -p "$base" || give_up 73 "cannot make $base"
  dd if="$sweep_file" of="$copy" conv=excl status=none || give_up 73 "cannot copy $sweep_file to $copy"
  array=$(sbatch --parsable --array="1-${#lines[@]}${max_parallel:+%$max_parallel}" "$0" "$(realpath "$copy")" "$@") ||
    give_up $? "sbatch has failed"
  printf '%s\n' "array $array:" "${names[@]/#/  $base/}" "compare them by: lockstep compare $base/*, or lockstep report $base/*"
  exit 0
}
