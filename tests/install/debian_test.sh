#!/usr/bin/env bash
# debian_test.sh SUITE PROGRAM: a short test of HEAD in a separate Debian SUITE: builds the program and the CPU engine's
# conformance suite, resumes a run on two ranks and verifies its checkpoint; also resumes a run of PROGRAM, which uses this
# machine's libraries. scripts/debian-root SUITE runs all tests.
# Exit status 77 if this machine is that Debian, or cannot create one.
set -euo pipefail
cd "$(dirname "$0")/../.."

launch=(mpirun -n 2 --oversubscribe --bind-to none --allow-run-as-root)
train=(train --synthetic --synthetic-samples 64 --model mini-resnet --width 8 --image-size 16 --channels 3 --classes 4
  --batch-size 8 --threads 1 --progress plain)

inside() {
  scripts/install-dependencies build
  if [ -d "$HOME/.cache/ccache" ]; then
    apt-get install -y -qq --no-install-recommends ccache >/dev/null
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
  fi
  cmake --preset ci -DLOCKSTEP_CUDA=OFF >build/configured.log || { cat build/configured.log; exit 1; }
  cmake --build --preset ci --target lockstep_program engine_conformance_test >build/built.log || { cat build/built.log; exit 1; }
  build/ci/tests/conformance/engine_conformance_test
  lockstep=build/ci/lockstep
  "$lockstep" --version
  rm -rf build/run
  "${launch[@]}" "$lockstep" "${train[@]}" --run-dir build/run --max-steps 3
  resume build/run
  # These bits are this Debian's own: nothing to announce.
  if grep "may differ" build/resumed.log; then exit 1; fi
  resume build/run-of-other-libraries
  grep -q "the backend was oneDNN .*, is oneDNN .* now (results may differ in their last bits)" build/resumed.log
}

resume() {  # RUN_DIR
  "${launch[@]}" "$lockstep" "${train[@]}" --run-dir "$1" --max-steps 5 2>&1 | tee build/resumed.log
  grep -q "resuming from" build/resumed.log
  grep -q "finished at step 5" build/resumed.log
  "$lockstep" inspect "$1/checkpoints/latest" --verify
}

if [ "$1" = --inside ]; then
  mkdir -p build
  inside
  exit
fi
suite=$1
program=$2
if grep -q "^VERSION_CODENAME=$suite$" /etc/os-release; then
  echo "skipped: this machine is Debian $suite"
  exit 77
fi
if ! command -v ccache >/dev/null; then
  echo "skipped: no compiler cache is here (without one it takes minutes; see scripts/soak)"
  exit 77
fi
if ! git rev-parse --quiet --verify HEAD >/dev/null; then
  echo "skipped: this is no checkout of git"
  exit 77
fi
run=build/debian/$suite/system/root/lockstep/build/run-of-other-libraries
status=0
scripts/debian-root "$suite" rm -rf build/run-of-other-libraries 2>&1 || status=$?
if [ "$status" = 0 ]; then
  "${launch[@]}" "$program" "${train[@]}" --run-dir "$run" --max-steps 3
  scripts/debian-root "$suite" tests/install/debian_test.sh --inside 2>&1 || status=$?
fi
[ "$status" != 77 ] || echo "skipped: no Debian $suite can be made here"
exit "$status"
