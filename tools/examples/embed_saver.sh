#!/usr/bin/env bash
# Builds a training loop of its own that saves with msuite's saver (embed_saver/), runs it, and continues it after a stop.
#
#   tools/examples/embed_saver.sh     MS_PREFIX: where msuite is installed, by cmake --install build --prefix DIR
#
# Takes a compiler and the libraries of tools/packages.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
prefix=${MS_PREFIX:+$(realpath "$MS_PREFIX")}
[ -n "$prefix" ] || { echo "SKIPPED: needs MS_PREFIX, the folder of cmake --install build --prefix DIR"; exit 77; }
PATH=$prefix/bin:$PATH
begin embed_saver cmake msckpt
cmake -S "$examples/embed_saver" -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >log
cmake --build build >>log || { cat log; exit 1; }

for iterations in 60 100; do
  printf '$ build/train_loop checkpoints %s\n' "$iterations"
  build/train_loop checkpoints "$iterations" 2>>log  # the saver's log
done
run msckpt verify checkpoints
