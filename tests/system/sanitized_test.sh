#!/usr/bin/env bash
# sanitized_test.sh BUILD: runs system tests with the program built by Clang with AddressSanitizer (with leaks) and
# UndefinedBehaviorSanitizer in BUILD, the fuzzers' build, whose objects it shares. Status 77 without Clang.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1
command -v clang++ >/dev/null || {
  echo "skipped: clang++ is not there"
  exit 77
}
launcher=$(command -v ccache || true)
cd "$here/../.."
cmake --preset fuzz -B "$build" ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"} >/dev/null
cmake --build "$build" --target lockstep_program --parallel "$(nproc)" >"$build/program.log" 2>&1 || {
  cat "$build/program.log"
  exit 1
}
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
export LOCKSTEP_PROGRAM=$build/lockstep LOCKSTEP_SANITIZER_REPORTS=$reports
status=0
for suite in batch_norm comm data faults resume save; do
  "${LOCKSTEP_PYTHON:-python3}" "$here/${suite}_test.py" || status=1
done
exit $status
