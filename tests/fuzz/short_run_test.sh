#!/usr/bin/env bash
# short_run_test.sh BUILD [SECONDS [TARGET...]]
# Builds the fuzz targets with Clang in a separate directory and runs each, or those given, for a few seconds. Status 77: no Clang
# with libFuzzer.
set -euo pipefail
cd "$(dirname "$0")/../.."
FUZZ_BUILD=$1 scripts/fuzz "${2:-5}" "${@:3}"
