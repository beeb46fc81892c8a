# --tp, --pp, --ep, --dp, --from and --to are short forms of the long flags.
set -euo pipefail
model="$MS_SOURCE/tests/data/hf_llama_tiny"
msckpt convert --load-dir "$model" --save-dir long --save-model-type mg --target-tensor-parallel-size 2 \
  --target-pipeline-parallel-size 2 2>/dev/null
msckpt convert --load-dir "$model" --save-dir short --from hf --to mg --tp 2 --pp 2 2>/dev/null
diff -r long short && echo same
msckpt convert --load-dir "$MS_SOURCE/tests/data/hf_qwen3_moe_tiny" --save-dir experts --ep 2 --json 2>/dev/null |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["to"])'
msckpt inspect experts --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["layout"]["ep"])'
msckpt convert --load-dir "$model" --save-dir wrong --to onnx || echo "exit $?"
msckpt convert --load-dir "$model" --save-dir wrong --to ds || echo "exit $?"
msckpt convert --load-dir "$model" --save-dir wrong --to gguf --dtype q4_0 || echo "exit $?"
