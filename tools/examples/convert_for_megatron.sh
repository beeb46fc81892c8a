#!/usr/bin/env bash
# Converts a Hugging Face model for Megatron (2 tensor-parallel ranks, 2 pipeline stages), proves it, and converts it back.
#
#   tools/examples/convert_for_megatron.sh [MODEL]     default: a Llama of this repository with two layers
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
model=$(realpath "${1:-$top/tests/data/hf_llama_tiny}")
begin convert_for_megatron msckpt
ln -s "$model" model

run msckpt convert --load-dir model --save-dir megatron --to mg --tp 2 --pp 2 --prove
run msckpt convert --load-dir megatron --save-dir back --to hf --hf-cfg-dir model
run cmp model/model.safetensors back/model.safetensors
echo "the weights came back byte for byte"
