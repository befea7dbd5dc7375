#!/usr/bin/env bash
# aarch64_program_test.sh: builds the program and the unit tests for 64-bit Arm with Debian's cross compiler, against Debian's libraries for
# that processor, and runs under QEMU the unit tests, the CPU engine's conformance suite, and a training that is resumed.
# The build is in build/aarch64. The libraries stay in the user's cache for the next run: CMake refuses to export targets with headers that
# are in the source tree. Exit status 77 if the tools or a mirror are missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
for program in aarch64-linux-gnu-g++ qemu-aarch64 mmdebstrap mpicxx h5cc; do
  command -v "$program" >/dev/null || { echo "skipped: $program is not here (install g++-aarch64-linux-gnu, qemu-user and mmdebstrap)"; exit 77; }
done
work=$PWD/build/aarch64
root=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/debian-arm64
mkdir -p "$work/bin"
if [ ! -e "$root.complete" ]; then
  rm -rf --one-file-system "$root"
  mkdir -p "$(dirname "$root")"
  packages=$(awk '/^(lib|nlohmann|zlib)/ { print $1 }' scripts/packages.txt | paste -sd,)
  # shellcheck source=/dev/null
  mmdebstrap --quiet --mode=root --variant=extract --architectures=arm64 --include="libc6-dev,$packages" "$(. /etc/os-release && echo "$VERSION_CODENAME")" \
    "$root" || { echo "skipped: no mirror has Debian for 64-bit Arm"; exit 77; }
  touch "$root.complete"
fi
# The wrappers tell CMake where headers and libraries are; this machine's, with paths of the other processor's.
here=$(gcc -print-multiarch)
for wrapper in mpicxx h5cc; do
  cat >"$work/bin/$wrapper" <<EOF
#!/bin/bash
set -o pipefail
$(command -v $wrapper) "\$@" | sed -E 's,(/usr/(lib|include)/),$root\1,g; s,$here,aarch64-linux-gnu,g'
EOF
  chmod +x "$work/bin/$wrapper"
done
cat >"$work/toolchain.cmake" <<EOF
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH $root)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_SYSROOT $root)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L $root)
EOF
cmake -S . -B "$work/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$work/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_ASSERTS=ON \
  -DLOCKSTEP_WARNINGS_AS_ERRORS=ON -DCMAKE_CXX_FLAGS=-Wno-psabi -DLOCKSTEP_CUDA=OFF -DMPI_CXX_COMPILER="$work/bin/mpicxx" \
  -DMPI_C_COMPILER="$work/bin/mpicxx" -DMPIEXEC_EXECUTABLE="$(command -v mpiexec)" -DHDF5_C_COMPILER_EXECUTABLE="$work/bin/h5cc" \
  -DLOCKSTEP_PYTHON="$PWD/build/python/bin/python3" >"$work/configured.log" 2>&1 || { cat "$work/configured.log"; exit 1; }
cmake --build "$work/build" --target lockstep_program unit_tests >"$work/built.log" || { tail -n 50 "$work/built.log"; exit 1; }
readelf --file-header "$work/build/lockstep" | grep 'Machine: *AArch64'

# Not under QEMU: cuda_kernels_test takes hours; resource limits do not hold (memory_limit_test, a case of cpu_engine_test); Python would
# start the program without QEMU. winograd_test takes minutes, so not again with the vectors of other processors.
ctest --test-dir "$work/build" --parallel "$(nproc)" -L unit -LE 'soak|timing|python' \
  -E '^(cuda_kernels_test|memory_limit_test|cpu_engine_test|shard_python_test|.*\.(avx2|baseline))$' --output-on-failure --no-tests=error
qemu-aarch64 -L "$root" "$work/build/tests/engine/cpu_engine_test" '--run_test=!a_batch_too_large_for_memory_*'
lockstep=(qemu-aarch64 -L "$root" "$work/build/lockstep")
"${lockstep[@]}" --version
train=("${lockstep[@]}" train --synthetic --synthetic-samples 64 --model mini-resnet --width 8 --image-size 16 --channels 3 --classes 4
  --batch-size 8 --threads 1 --progress plain --run-dir "$work/run")
rm -rf "$work/run"
# QEMU has no process_vm_readv.
launch=(mpirun -n 2 --oversubscribe --bind-to none --allow-run-as-root --mca btl_vader_single_copy_mechanism none)
"${launch[@]}" "${train[@]}" --max-steps 3
"${launch[@]}" "${train[@]}" --max-steps 5 2>&1 | tee "$work/resumed.log"
grep -q "resuming from" "$work/resumed.log"
grep -q "finished at step 5" "$work/resumed.log"
"${lockstep[@]}" inspect "$work/run/checkpoints/latest" --verify
