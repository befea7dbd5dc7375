#!/usr/bin/env bash
# mpich_test.sh BUILD: builds with MPICH, in BUILD, what talks to MPI, and runs its tests; exit status 77 where MPICH is absent.
# Debian installs MPICH beside Open MPI, under names of its own; LOCKSTEP_MPICH names the bin folder of another one.
set -euo pipefail
build=$1
cd "$(dirname "$0")/../.."
bin=${LOCKSTEP_MPICH:-/usr/bin}
suffix=
[ ! -x "$bin/mpicxx.mpich" ] || suffix=.mpich
if ! "$bin/mpiexec$suffix" --version 2>/dev/null | grep -q HYDRA; then
  echo "skipped: MPICH is not here (install mpich and libmpich-dev)"
  exit 77
fi

# Not optimised: twice as quick to build, and the tests compute next to nothing.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O0 -DLOCKSTEP_WARNINGS_AS_ERRORS=ON \
  -DLOCKSTEP_CUDA=OFF -DMPI_CXX_COMPILER="$bin/mpicxx$suffix" -DMPI_C_COMPILER="$bin/mpicc$suffix" \
  -DMPIEXEC_EXECUTABLE="$bin/mpiexec$suffix" >"$build.log" || { cat "$build.log"; exit 1; }
grep "Found MPI_CXX" "$build.log" || true
tests=(mpi_environment_test communicator_test agreement_test roll_call_test gradient_reducer_mpi_test)
cmake --build "$build" --target "${tests[@]}" "$@" >"$build.log" || { tail -50 "$build.log"; exit 1; }

# MPICH waits by spinning, so more ranks than cores take minutes; one odd size is enough.
pattern=$(IFS='|'; echo "${tests[*]}")
ctest --test-dir "$build" -R "^($pattern)\.np[123]\$" --output-on-failure --no-tests=error
