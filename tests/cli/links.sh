#!/usr/bin/env bash
# ctest `cli.links`: linked libraries. No program needs MPI to start; msprof and msckpt do not contain the trainer. No program
# names the folder of its sources: it is the same wherever it was built.
set -euo pipefail
failures=0
fail() { echo "$*"; failures=1; }

for binary in msprof msckpt msdata mstrain; do
  if ldd "$MS_BIN/$binary" | grep libmpi; then fail "$binary loads libmpi"; fi
done
for binary in msprof msckpt msdata; do
  if ldd "$MS_BIN/$binary" | grep libdnnl; then fail "$binary loads libdnnl"; fi
done
for binary in msprof msckpt; do
  if ldd "$MS_BIN/$binary" | grep libsentencepiece; then fail "$binary loads libsentencepiece"; fi
done
# The same checks where they must find something.
ldd "$MS_BIN/../lib/msuite/libmsuite_mpi.so" | grep libmpi > /dev/null || fail "libmsuite_mpi.so loads no libmpi: is this check blind?"
ldd "$MS_BIN/mstrain" | grep libsentencepiece > /dev/null || fail "mstrain loads no libsentencepiece: is this check blind?"

trainer='ms::train::'
nm -C "$MS_BIN/mstrain" | grep "$trainer" >/dev/null || fail "mstrain has no symbol of $trainer: is this check blind?"
for binary in msprof msckpt; do
  if nm -C "$MS_BIN/$binary" | grep "$trainer" | head -3; then fail "$binary links the trainer"; fi
done

stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
for binary in mstrain msprof msckpt msdata; do
  strip -o "$stripped" "$MS_BIN/$binary"  # of symbols and debug information
  if grep -qaF "$MS_SOURCE/" "$stripped"; then fail "$binary contains $MS_SOURCE: -fmacro-prefix-map of tools/cmake/ms.cmake is missing"; fi
done
grep -qaF core/tensor.h "$MS_BIN/mstrain" || fail "mstrain names no source: is this check blind?"
[ "$failures" -eq 0 ] && echo "no program loads MPI by itself, msprof, msckpt and msdata no oneDNN; the trainer is in mstrain alone"
