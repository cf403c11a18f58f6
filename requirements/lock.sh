#!/usr/bin/env bash
# Writes the locks: one resolution for all, so that gateway, engine and tests fit into one
# environment, on Python 3.11 to 3.13; then one file for each.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=${UV:-uv}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
plain=(--universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url
  --no-emit-package weft --quiet)
options=("${plain[@]}" --overrides requirements/overrides.txt)
"$UV" pip compile "${options[@]}" pyproject.toml --extra dev requirements/engine-cpu.in \
  requirements/build.in -o "$work/all.txt" "$@"
"$UV" pip compile "${options[@]}" -c "$work/all.txt" pyproject.toml requirements/build.in \
  -o requirements/gateway.txt
"$UV" pip compile "${options[@]}" -c "$work/all.txt" requirements/engine-cpu.in \
  -o requirements/engine-cpu.txt
"$UV" pip compile "${options[@]}" -c "$work/all.txt" pyproject.toml --extra dev \
  -o requirements/test.txt
# CUDA's torch and libraries, in another environment than the CPU build: it agrees with the gateway
# and the tests only.
"$UV" pip compile "${plain[@]}" -c requirements/gateway.txt -c requirements/test.txt \
  requirements/engine-gpu.in -o requirements/engine-gpu.txt
# neighbours.txt, which tests/system/test_wheel.py installs, is written by hand: its transformers is
# that of engine-cpu.txt.
wc -l requirements/*.txt
