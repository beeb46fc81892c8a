#!/usr/bin/env bash
# ctest `install.embed`: installs $MS_BUILD, builds outside/ against the installed tree alone, runs what came out;
# then the example that embeds the saver (tools/examples/embed_saver.sh).
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$MS_BUILD" --prefix "$scratch/prefix" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
# A copy, so that no header of the source tree can be found by accident.
cp -r "$MS_SOURCE/tests/install/outside" "$scratch/outside"
cmake -S "$scratch/outside" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix"
cmake --build "$scratch/build" --parallel 2

cd "$scratch"
for program in planner saver operators recorder; do
  "build/$program"
done
MS_PREFIX=$scratch/prefix python3 "$MS_SOURCE/tests/cli/examples.py" embed_saver
