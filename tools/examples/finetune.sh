#!/usr/bin/env bash
# Fine-tunes a Hugging Face model on a text of your own on 2 ranks, and writes a Hugging Face folder again.
#
#   tools/examples/finetune.sh [MODEL TEXT]     default: a Llama of this repository with 67 words, on a text of such words
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
model=$(realpath "${1:-$top/tests/data/hf_llama_tiny}") text=${2:+$(realpath "$2")}
begin finetune msdata mstrain mpirun msckpt
ln -s "$model" model
if [ -n "$text" ]; then
  tokenizer=(--tokenizer-type HuggingFaceTokenizer --tokenizer-model model)
else  # the small model has no tokenizer: its texts are numbers
  tokenizer=(--tokenizer-type NullTokenizer --vocab-size 66)
  text=ids.txt
  awk 'BEGIN { token = 1; for (i = 0; i < 20000; ++i) { printf "%d ", token; token = (token * 5 + 7) % 66 } }' >"$text"
fi

run msdata preprocess "$text" --output-prefix data "${tokenizer[@]}" --append-eod
run mpirun --oversubscribe --bind-to none -n 2 mstrain --load model --use-checkpoint-args --finetune \
  --tensor-model-parallel-size 2 --seq-length 64 --micro-batch-size 2 --global-batch-size 4 --train-iters 20 \
  --lr 5e-3 --lr-decay-style cosine --min-lr 5e-4 --bf16 --data-path data_text_document "${tokenizer[@]}" \
  --eval-iters 0 --log-interval 5 --threads-per-rank 1 --peak-tflops 0.1 --save tuned | cut -d '|' -f 1,5 --output-delimiter '|'
run msckpt convert --load-dir tuned --save-dir exported --to hf --hf-cfg-dir model --drop-optimizer
run ls exported
