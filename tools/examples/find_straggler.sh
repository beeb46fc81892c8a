#!/usr/bin/env bash
# Finds the slow rank in the Kineto traces of a job, and what it does more slowly.
#
#   tools/examples/find_straggler.sh [TRACES]     default: a job of 4 ranks made here, whose rank 2 computes more slowly
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
traces=${1:+$(realpath "$1")}
begin find_straggler msprof
if [ -n "$traces" ]; then
  ln -s "$traces" traces
else
  python3 "$examples/make_traces.py" traces --slow-rank 2
fi

run msprof ranks traces
run msprof analyze traces
