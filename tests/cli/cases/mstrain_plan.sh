# The plan of runs that nobody starts: as text and as JSON; what becomes of saved tensors where micro-batches differ; a number
# of ranks that the layout does not fit.
set -euo pipefail
plan() {
  mstrain --num-layers 4 --hidden-size 64 --num-attention-heads 4 --swiglu --ffn-hidden-size 128 --normalization RMSNorm \
    --disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights --hidden-dropout 0 \
    --attention-dropout 0 --seq-length 32 --micro-batch-size 2 --global-batch-size 16 --lr 1e-3 --train-iters 1 --print-plan "$@"
}
plan --vocab-size 256 --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 \
  --num-layers-per-virtual-pipeline-stage 1 --use-distributed-optimizer --bf16 --plan-world-size 8
plan --plan-world-size 2 --json | python3 -c '
import json, sys
plan = json.load(sys.stdin)
print({k: plan[k] for k in ("world_size", "parameters", "assumptions", "saved_tensors")})
print([(c["group"], c["operation"], c["calls"], c["bytes"]) for c in plan["stages"][0]["communication"]])'
plan --vocab-size 256 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 --recompute-in-bubble --recompute-norm \
  --swap-attention --swap-min-tensor-kib 0 --plan-world-size 2 | sed -n '/^saved tensors/,/^$/p'
plan --vocab-size 256 --tensor-model-parallel-size 4 --plan-world-size 6 || echo "exit $?"
plan --vocab-size 256 --pipeline-model-parallel-size 2 --automated-pipeline --plan-world-size 2 || echo "exit $?"
mstrain --plan-world-size 4 || echo "exit $?"
