#!/usr/bin/env bash
# Trains a small model with tensor parallelism, continues it with pipeline parallelism, and checks that nothing was lost.
#
#   tools/examples/continue_elsewhere.sh [TEXT]     TEXT: a file or a folder of .txt and .md files; default: this repository's LICENSE
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
text=$(realpath "${1:-$top/LICENSE}")
begin continue_elsewhere msdata mstrain mpirun msckpt
ln -s "$text" text
run msdata preprocess text --glob '*.txt' --glob '*.md' --output-prefix data --append-eod

model="--num-layers 4 --hidden-size 32 --num-attention-heads 4 --swiglu --normalization RMSNorm --position-embedding-type rope
  --disable-bias-linear --untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0"
training="--seq-length 64 --micro-batch-size 2 --global-batch-size 4 --lr 5e-3 --lr-decay-style constant --eval-iters 0
  --data-path data_text_document --log-interval 5 --threads-per-rank 1 --peak-tflops 0.1 --save checkpoints --load checkpoints"
train() {  # train UP_TO_ITERATION FLAGS...
  local iterations=$1
  shift
  # shellcheck disable=SC2086
  run mpirun --oversubscribe --bind-to none -n 2 mstrain $model $training --train-iters "$iterations" "$@" |
    grep -E '^\$|loaded iteration|lm loss|saved iteration|^E ' | cut -d '|' -f 1,5 --output-delimiter '|'
}
train 10 --tensor-model-parallel-size 2 --sequence-parallel
run msckpt reshard --load-dir checkpoints --save-dir for_pipeline --pp 2
run msckpt diff checkpoints for_pipeline --resume
train 20 --pipeline-model-parallel-size 2
run msckpt verify checkpoints --all
