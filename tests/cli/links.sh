#!/usr/bin/env bash
# ctest `cli.links`: linked libraries. msprof and msckpt work without MPI, and do not contain the trainer.
set -euo pipefail
failures=0
fail() { echo "$*"; failures=1; }

for library in libmpi libdnnl; do
  for binary in msprof msckpt msdata; do
    if ldd "$MS_BIN/$binary" | grep "$library"; then fail "$binary loads $library"; fi
  done
done
for binary in msprof msckpt; do
  if ldd "$MS_BIN/$binary" | grep libsentencepiece; then fail "$binary loads libsentencepiece"; fi
done
# The same checks on mstrain, to show that they find what they look for.
for library in libmpi libsentencepiece; do
  ldd "$MS_BIN/mstrain" | grep "$library" > /dev/null || fail "mstrain loads no $library: is this check blind?"
done

trainer='ms::train::'
nm -C "$MS_BIN/mstrain" | grep "$trainer" >/dev/null || fail "mstrain has no symbol of $trainer: is this check blind?"
for binary in msprof msckpt; do
  if nm -C "$MS_BIN/$binary" | grep "$trainer" | head -3; then fail "$binary links the trainer"; fi
done
[ "$failures" -eq 0 ] && echo "msprof, msckpt and msdata load neither MPI nor oneDNN; the trainer is in mstrain alone"
