#!/usr/bin/env bash
# A gate for continuous integration: fails when a run became slower, or when an export no longer holds the checkpoint's weights.
#
#   tools/examples/gate_ci.sh
#
# Both tools exit with 10 when nothing failed and the answer is no, so a CI job needs only these two lines under `set -e`.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin gate_ci msprof msckpt
python3 "$examples/make_traces.py" baseline
python3 "$examples/make_traces.py" same
python3 "$examples/make_traces.py" slower --slow-rank 1 --slower 1.2
ln -s "$top/tests/data/hf_llama_tiny" checkpoint
python3 "$examples/swap_tensors.py" checkpoint export
python3 "$examples/swap_tensors.py" checkpoint stale model.layers.0.input_layernorm.weight model.layers.1.input_layernorm.weight

answer msprof check same --against baseline --max-slowdown 1.05
answer msprof check slower --against baseline --max-slowdown 1.05
answer msckpt verify export --against checkpoint
answer msckpt verify stale --against checkpoint
