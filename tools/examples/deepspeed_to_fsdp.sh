#!/usr/bin/env bash
# Reshards a DeepSpeed run (ZeRO-3 on 3 ranks) for FSDP on 2 ranks, optimizer state included, and continues it there.
#
#   tools/examples/deepspeed_to_fsdp.sh [RUN MODEL]     RUN: the folder that DeepSpeed saved; MODEL: one with its config.json
#
# Continuing takes torch and transformers in the Python that MS_PEERS_PYTHON names (python3).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source=$(realpath "${1:-$top/tests/data/deepspeed/zero3}")
model=$(realpath "${2:-$top/tests/data/deepspeed/expected/zero3/param}")
begin deepspeed_to_fsdp msckpt
ln -s "$source" run
ln -s "$model" model

run msckpt convert --load-dir run --hf-cfg-dir model --save-dir fsdp --to dcp --dp 2 --prove
run msckpt verify fsdp --against run --hf-cfg-dir model
run "${MS_PEERS_PYTHON:-python3}" "$examples/continue_fsdp.py" model fsdp
