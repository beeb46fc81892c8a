#!/usr/bin/env bash
# Verifies conversions that another tool made: one that is right, and one that packed the MLP's matrices the wrong way round.
#
#   tools/examples/verify_conversion.sh [CONVERTED ORIGINAL]     default: two made here of a Llama of this repository
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
converted=${1:+$(realpath "$1")} original=$(realpath "${2:-$top/tests/data/hf_llama_tiny}")
begin verify_conversion msckpt
ln -s "$original" original
if [ -n "$converted" ]; then
  ln -s "$converted" converted
  answer msckpt verify converted --against original --prove
  exit
fi

python3 "$examples/swap_tensors.py" original right
python3 "$examples/swap_tensors.py" original wrong model.layers.1.mlp.gate_proj.weight model.layers.1.mlp.up_proj.weight
answer msckpt verify right --against original --prove
answer msckpt verify wrong --against original --prove
