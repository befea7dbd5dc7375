#!/usr/bin/env bash
# other_mpi_test.sh BUILD [BIN]: builds with another MPI in BUILD/other-mpi and runs the tests of the code that uses MPI. BIN is that MPI's
# folder of programs; default: Debian's MPICH, which is installed beside Open MPI with a suffix in its names. Exit status 77 without one.
# Objects whose source does not include mpi.h are reused from BUILD, which has the same compiler and flags.
set -euo pipefail
build=$1
bin=${2:-/usr/bin}
cd "$(dirname "$0")/../.."
suffix=
[ ! -x "$bin/mpicxx.mpich" ] || suffix=.mpich
launcher=$("$bin/mpiexec$suffix" --version 2>/dev/null || true)
launch=("$bin/mpiexec$suffix")
case $launcher in
  *HYDRA*) ;;
  *"Open MPI"*) launch+=(--oversubscribe --allow-run-as-root --bind-to none) ;;
  *) launcher= ;;
esac
if [ -z "$launcher" ] || [[ -z ${2:-} && $launcher != *HYDRA* ]]; then
  echo "skipped: MPICH is not here (install mpich and libmpich-dev)"
  exit 77
fi
other=$build/other-mpi
rm -rf "$other"
mkdir "$other"
log=$other/log

ninja -C "$build" -t deps | awk '
  /^[^ ].*: #deps/ { name = $1; sub(/:$/, "", name) }
  /\/mpi\.h$/ { print name }' | sort -u >"$other/anew"
[ -s "$other/anew" ] || { echo "$build has no record of a source that includes mpi.h"; exit 1; }
kind=$(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$build/CMakeCache.txt")
asserts=$(sed -n 's/^LOCKSTEP_ASSERTS:[A-Z]*=//p' "$build/CMakeCache.txt")
export REUSED=$other/reused ANEW=$other/anew
cmake -S . -B "$other" -G Ninja -DCMAKE_BUILD_TYPE="$kind" -DLOCKSTEP_ASSERTS="$asserts" -DLOCKSTEP_WARNINGS_AS_ERRORS=ON \
  -DLOCKSTEP_CUDA=OFF \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/tests/install/reuse_object.sh;$build" -DMPI_CXX_COMPILER="$bin/mpicxx$suffix" \
  -DMPI_C_COMPILER="$bin/mpicc$suffix" -DMPIEXEC_EXECUTABLE="$bin/mpiexec$suffix" >"$log" || { cat "$log"; exit 1; }
grep "Found MPI_CXX" "$log" || true
tests=(mpi_environment_test communicator_test agreement_test rendezvous_test gradient_reducer_mpi_test train_step_test trace_mpi_test traced_step_test sharded_step_test sharded_precision_test)
cmake --build "$other" --target "${tests[@]}" lockstep_program job_probe >"$log" || { tail -50 "$log"; exit 1; }
echo "built with $bin/mpicxx$suffix: $(grep -c 'Building CXX' "$log") objects, $(wc -l <"$REUSED") of them reused from $build"

# MPI waits by spinning, so more ranks than cores take minutes. Two ranks; collectives also on an odd number.
pattern=$(IFS='|'; echo "${tests[*]}")
ctest --test-dir "$other" -R "^(($pattern)\.np2|(communicator|gradient_reducer_mpi)_test\.np3|cli\.job)\$" \
  --output-on-failure --no-tests=error
train() {
  "${launch[@]}" -n 2 "$other/lockstep" train --synthetic --synthetic-samples 64 --model mini-resnet --width 8 \
    --image-size 16 --channels 3 --classes 4 --batch-size 8 --threads 1 --progress plain --run-dir "$other/run" "$@" 2>&1
}
train --max-steps 3
train --max-steps 5 | tee "$log"
grep -q "resuming from" "$log"
grep -q "finished at step 5" "$log"
