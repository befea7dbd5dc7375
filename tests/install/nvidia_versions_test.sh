#!/usr/bin/env bash
# nvidia_versions_test.sh BUILD: compiles the sources that call CUDA, cuDNN, its frontend and NCCL with the headers of the oldest versions that
# cmake/LockstepCuda.cmake accepts, and of the newest ones, from a Python package index. Downloads 2 to 4 GB, one package at a time, and keeps only
# headers. Exit status 77 if BUILD has no GPU module.
set -euo pipefail
build=$1
cd "$(dirname "$0")/../.."
python=build/python/bin/python3
work=$build/nvidia-versions
mkdir -p "$work"

headers() {  # FOLDER PACKAGE: one of scripts/python-packages/nvidia-FOLDER.txt, with its sums
  local folder=$work/$1/$2 wheel
  wheel=$(mktemp -d)
  sed -n "/^$2==/,/[^\\\\]\$/p" "scripts/python-packages/nvidia-$1.txt" >"$work/package.txt"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --dest "$wheel" -r "$work/package.txt"
  echo "$1: $(cd "$wheel" && echo *.whl)"
  "$python" -I - "$wheel"/*.whl "$folder" <<'END'
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        _, found, below = name.partition("include/")
        if found and not name.endswith("/"):
            path = pathlib.Path(sys.argv[2], "include", below)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wheel.read(name))
END
  rm -r "$wheel"
}

compile() {  # FOLDER: the sources, with its headers before those of the build
  local source command count=0 folder folders=
  for folder in "$work/$1"/*/include; do folders+=" -isystem $folder"; done
  for source in src/comm/nccl/nccl_api.cpp src/compute/module/nvtx_marks.cpp src/engine/gpu/cuda/*.cpp; do
    command=$(sed -nE "s|^ *\"command\": \"(.*) -o [^ ]* -c $PWD/$source\",?\$|\1|p" "$build/compile_commands.json" | sed "s/ -Winvalid-pch -include [^ ]*cmake_pch.hxx//" | head -n 1 | sed 's|\\\(.\)|\1|g')
    [ -n "$command" ] || { echo "skipped: $build has no GPU module (it does not compile $source)"; exit 77; }
    eval "${command/ -/ -fsyntax-only$folders -}" "$source"
    count=$((count + 1))
  done
  echo "$count sources compile with the $1 headers"
}

rm -rf "$work/oldest" "$work/newest"
for versions in oldest newest; do
  for package in $(sed -n 's/==.*//p' "scripts/python-packages/nvidia-$versions.txt"); do headers "$versions" "$package"; done
  compile "$versions"
done
