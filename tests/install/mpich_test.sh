#!/usr/bin/env bash
# mpich_test.sh BUILD: builds with MPICH in BUILD/mpich and runs the tests of the code that uses MPI; exit status 77 without
# MPICH. Objects whose source does not include mpi.h are reused from BUILD, which has the same compiler and flags.
# Debian installs MPICH beside Open MPI, with a suffix in its names; LOCKSTEP_MPICH is the bin folder of another MPICH.
set -euo pipefail
build=$1
cd "$(dirname "$0")/../.."
bin=${LOCKSTEP_MPICH:-/usr/bin}
suffix=
[ ! -x "$bin/mpicxx.mpich" ] || suffix=.mpich
launcher=$("$bin/mpiexec$suffix" --version 2>/dev/null || true)
if [[ $launcher != *HYDRA* ]]; then
  echo "skipped: MPICH is not here (install mpich and libmpich-dev)"
  exit 77
fi
rm -rf "$build/mpich"
mkdir "$build/mpich"
log=$build/mpich/log

ninja -C "$build" -t deps | awk '
  /^[^ ].*: #deps/ { name = $1; sub(/:$/, "", name) }
  /\/mpi\.h$/ { print name }' | sort -u >"$build/mpich/anew"
[ -s "$build/mpich/anew" ] || { echo "$build has no record of a source that includes mpi.h"; exit 1; }
kind=$(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$build/CMakeCache.txt")
asserts=$(sed -n 's/^LOCKSTEP_ASSERTS:[A-Z]*=//p' "$build/CMakeCache.txt")
export REUSED=$build/mpich/reused ANEW=$build/mpich/anew
cmake -S . -B "$build/mpich" -G Ninja -DCMAKE_BUILD_TYPE="$kind" -DLOCKSTEP_ASSERTS="$asserts" -DLOCKSTEP_WARNINGS_AS_ERRORS=ON \
  -DLOCKSTEP_CUDA=OFF \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/tests/install/reuse_object.sh;$build" -DMPI_CXX_COMPILER="$bin/mpicxx$suffix" \
  -DMPI_C_COMPILER="$bin/mpicc$suffix" -DMPIEXEC_EXECUTABLE="$bin/mpiexec$suffix" >"$log" || { cat "$log"; exit 1; }
grep "Found MPI_CXX" "$log" || true
tests=(mpi_environment_test communicator_test agreement_test rendezvous_test gradient_reducer_mpi_test train_step_test trace_mpi_test traced_step_test sharded_step_test sharded_precision_test)
cmake --build "$build/mpich" --target "${tests[@]}" lockstep_program job_probe >"$log" || { tail -50 "$log"; exit 1; }
echo "built with MPICH: $(grep -c 'Building CXX' "$log") objects, $(wc -l <"$REUSED") of them reused from $build"

# MPICH waits by spinning, so more ranks than cores take minutes. Two ranks; collectives also on an odd number.
pattern=$(IFS='|'; echo "${tests[*]}")
ctest --test-dir "$build/mpich" -R "^(($pattern)\.np2|(communicator|gradient_reducer_mpi)_test\.np3|cli\.job)\$" \
  --output-on-failure --no-tests=error
train() {
  "$bin/mpiexec$suffix" -n 2 "$build/mpich/lockstep" train --synthetic --synthetic-samples 64 --model mini-resnet --width 8 \
    --image-size 16 --channels 3 --classes 4 --batch-size 8 --threads 1 --progress plain --run-dir "$build/mpich/run" "$@" 2>&1
}
train --max-steps 3
train --max-steps 5 | tee "$log"
grep -q "resuming from" "$log"
grep -q "finished at step 5" "$log"
