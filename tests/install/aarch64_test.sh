#!/usr/bin/env bash
# aarch64_test.sh BUILD: compiles for 64-bit Arm, with BUILD's flags, the sources that depend on the processor, and runs the tests of
# those that need no other library under QEMU. Exit status 77 without the cross compiler or QEMU.
#
# Headers of libraries are the host's, and nothing is linked with them: it shows that the sources compile without warnings. The soak
# builds the whole program (aarch64_program_test.sh).
set -euo pipefail
build=$1
cd "$(dirname "$0")/../.."
compiler=$(compgen -c aarch64-linux-gnu-g++ | sort -V | tail -n 1)
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
if [ -z "$compiler" ] || [ -z "$emulator" ]; then
  echo "skipped: no cross compiler and emulator for 64-bit Arm are here (install g++-aarch64-linux-gnu and qemu-user)"
  exit 77
fi
work=$build/aarch64
rm -rf "$work"
mkdir "$work"

# The commands of BUILD with the cross compiler in place of all words before the first option, without what only x86 has.
git grep -lE 'core/vectors|vector_loop|vector_types|norm_lanes|__x86_64__|__aarch64__' -- 'src/*.cpp' | while read -r source; do
  sed -nE "s|^ *\"command\": \"(.*) -o [^ ]* -c $PWD/$source\",?\$|\1 $source|p" "$build/compile_commands.json" | sed "s/ -Winvalid-pch -include [^ ]*cmake_pch.hxx//" | head -n 1
done | sed -E "s|^([^- ][^ ]* )+|$compiler -fsyntax-only -idirafter /usr/include -idirafter /usr/include/$(uname -m)-linux-gnu |"';  s|\\(.)|\1|g; s| -fcf-protection=full||' >"$work/commands"
count=$(wc -l <"$work/commands")
[ "$count" -gt 0 ] || { echo "$build has no compile commands"; exit 1; }
xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'eval "$0" || { echo "failed: $0"; exit 255; }' <"$work/commands"
echo "$count sources compile for 64-bit Arm"

# Boost.Test from its headers, and the libraries of the compiler, in one static program each.
runs() {  # TEST SOURCE...
  local test=$1
  shift
  sed -E "s|boost/test/unit_test.hpp|boost/test/included/unit_test.hpp|; s|\"../../src|\"$PWD/src|" "$test" >"$work/test.cpp"
  "$compiler" -std=c++20 -O2 -Wall -Wextra -Werror -Wno-psabi -fopenmp -static -DFMT_HEADER_ONLY -DBOOST_TEST_MODULE=aarch64 -Iinclude -Itests -idirafter /usr/include \
    "$@" "$work/test.cpp" -o "$work/test"
  "$emulator" "$work/test" --report_level=short
}
runs tests/core/core_test.cpp src/core/{crc32c,huge_pages,philox,shape}.cpp
runs tests/engine/matrix_product_test.cpp src/engine/cpu/matrix_product.cpp src/core/vectors.cpp
runs tests/data/resample_test.cpp -ffp-contract=off src/data/resample.cpp src/core/{philox,vectors}.cpp
