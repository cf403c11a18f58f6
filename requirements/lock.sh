#!/usr/bin/env bash
# Writes the locks. One resolution for gateway, engine and tests makes them fit into one environment
# on Python 3.11 to 3.13. Each then gets its own file.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=${UV:-uv}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
plain=(--universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url
  --no-emit-package weft-gateway --quiet)
options=("${plain[@]}" --overrides requirements/overrides.txt)
"$UV" pip compile "${options[@]}" pyproject.toml --extra dev requirements/engine-cpu.in \
  requirements/build.in -o "$work/all.txt" "$@"
"$UV" pip compile "${options[@]}" -c "$work/all.txt" pyproject.toml requirements/build.in \
  -o requirements/gateway.txt
"$UV" pip compile "${options[@]}" -c "$work/all.txt" requirements/engine-cpu.in \
  -o requirements/engine-cpu.txt
"$UV" pip compile "${options[@]}" -c "$work/all.txt" pyproject.toml --extra dev \
  -o requirements/test.txt
# The GPU engine has its own environment with CUDA builds. It has to agree only with the gateway and
# the tests.
"$UV" pip compile "${plain[@]}" -c requirements/gateway.txt -c requirements/test.txt \
  requirements/engine-gpu.in -o requirements/engine-gpu.txt
# neighbours.txt, which tests/system/test_wheel.py installs, is written by hand: its transformers is
# that of engine-cpu.txt.
wc -l requirements/*.txt
