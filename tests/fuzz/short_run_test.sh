#!/usr/bin/env bash
# Builds the fuzz targets with Clang in a separate directory and runs each for a few seconds. Status 77: no Clang with libFuzzer.
set -euo pipefail
cd "$(dirname "$0")/../.."
FUZZ_BUILD=$1 scripts/fuzz "${2:-5}"
