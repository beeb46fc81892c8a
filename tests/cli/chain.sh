#!/usr/bin/env bash
# ctest `chain`: one pipe of paths from text to an exported and analysed model, and its behaviour when a command fails.
set -euo pipefail
export PATH=$MS_BIN:$PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

fail() { echo "chain: $*"; exit 1; }

chain() {  # chain TEXT_FOLDER EXTRA_FLAG_OF_MSTRAIN...
  local text=$1
  shift
  msdata preprocess --input "$text" --glob '*.txt' --output-prefix data/corpus --append-eod |
    mpirun --oversubscribe --bind-to none -n 2 mstrain --data-path - --split 90,10,0 --tensor-model-parallel-size 2 \
      --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --normalization RMSNorm --swiglu \
      --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights \
      --hidden-dropout 0 --attention-dropout 0 \
      --micro-batch-size 2 --global-batch-size 4 --lr 1e-3 --train-iters 4 --eval-iters 1 --save checkpoints \
      --profile --profile-step-start 1 --profile-step-end 3 --profile-ranks -1 --profile-save-path profile "$@" |
    msckpt verify - |
    msckpt reshard --load-dir - --save-dir resharded --target-pipeline-parallel-size 2 |
    msckpt convert --load-dir - --save-dir huggingface --save-model-type hf --drop-optimizer |
    sed 's/.*/profile/' |
    msprof convert - --merge -o trace.json
}
expect_failure() {  # expect_failure CODE COMMAND...
  local expected=$1 seen=0
  shift
  "$@" >printed || seen=$?
  [ "$seen" -eq "$expected" ] || fail "$*: exit code $seen, expected $expected"
  [ ! -s printed ] || fail "$*: a broken chain printed $(cat printed)"
}

mkdir text data
split -l 10 --additional-suffix=.txt "$MS_SOURCE/LICENSE" text/  # 21 documents

[ "$(chain text)" = trace.json ] || fail "the chain did not print what it made last"
for made in data/corpus_text_document.idx checkpoints/iter_0000004/manifest.json resharded/iter_0000004/manifest.json \
  huggingface/model.safetensors huggingface/config.json trace.json; do
  [ -e "$made" ] || fail "$made was not made"
done
grep -q '"traceEvents"' trace.json || fail "trace.json is not a Chrome trace"

# The first command fails: nothing to read. The second fails: sizes that do not match the ranks. Later ones do nothing.
rm -rf data/* checkpoints resharded huggingface profile trace.json
expect_failure 2 chain no_such_folder
expect_failure 2 chain text --pipeline-model-parallel-size 3
[ ! -e resharded ] || fail "commands after a failed one did something"

# A command in the middle fails with its own exit code: a checkpoint with one flipped bit is damaged.
chain text >printed
shard=$(ls checkpoints/iter_0000004/rank_*.h5 | head -n 1)
size=$(stat -c %s "$shard")
byte=$(od -An -tu1 -j $((size / 2)) -N 1 "$shard")
# shellcheck disable=SC2059
printf "\\$(printf %o $((byte ^ 1)))" | dd of="$shard" bs=1 seek=$((size / 2)) conv=notrunc status=none
verify_and_reshard() { echo checkpoints | msckpt verify - | msckpt reshard --load-dir - --save-dir twice; }
expect_failure 3 verify_and_reshard
[ ! -e twice ] || fail "a corrupt checkpoint was resharded"
echo "the chain made everything, and every broken chain exited with the code of the command that failed"
