#!/bin/sh
# generate.sh PROGRAM EXIT_STATUS_PAGE OUTPUT
# Generates OUTPUT/lockstep.1 and the completions OUTPUT/lockstep.bash and OUTPUT/_lockstep from PROGRAM's --help,
# so they match the program's option tables and need no separate list.
set -eu
program=$1
exit_status_page=$2
output=$3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$output"

commands=$("$program" --help | awk '/^usage:/ { listed = 1; next } listed && /^  [a-z]/ && $1 != "lockstep" { print $1 }')
[ -n "$commands" ] || { echo "$program --help lists no commands" >&2; exit 1; }
for command in $commands; do
  "$program" --help | awk -v name="$command" '$1 == name { sub(/^ +[^ ]+ +/, ""); print "@command " name " " $0; exit }'
  "$program" "$command" --help all
done >"$output/help.txt"
awk -f "$here/records.awk" "$output/help.txt" >"$output/records.tsv"
awk -f "$here/man.awk" "$output/records.tsv" >"$output/commands.man"
awk -f "$here/exit_status.awk" "$exit_status_page" >"$output/exit_status.man"

# fill TEMPLATE MARK FILE [MARK FILE]: prints the template, with each line MARK replaced by the text of FILE.
fill() {
  awk -v mark1="$2" -v file1="$3" -v mark2="${4-}" -v file2="${5-}" -v version="$version" '
    function insert(file, line) { while ((getline line <file) > 0) print line }
    $0 == mark1 { insert(file1); next }
    mark2 != "" && $0 == mark2 { insert(file2); next }
    { gsub(/@VERSION@/, version); print }' "$1"
}
version=$("$program" --version | awk '{ print $2 }')
fill "$here/lockstep.1.in" @COMMANDS@ "$output/commands.man" @EXIT_STATUS@ "$output/exit_status.man" >"$output/lockstep.1"
awk -f "$here/bash.awk" "$output/records.tsv" >"$output/functions"
fill "$here/lockstep.bash.in" @FUNCTIONS@ "$output/functions" >"$output/lockstep.bash"
awk -f "$here/zsh.awk" "$output/records.tsv" >"$output/functions"
fill "$here/lockstep.zsh.in" @FUNCTIONS@ "$output/functions" >"$output/_lockstep"
