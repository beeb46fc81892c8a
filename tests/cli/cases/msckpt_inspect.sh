# One tensor in every role; a missing tensor; the layout, if it is known.
set -euo pipefail
"$MS_BUILD/tests/make_checkpoint" a 2 1 1 0 100
msckpt inspect a --tensor decoder.final_layernorm.weight | grep -v '  0 $'
msckpt inspect a --tensor decoder.final_layernorm.weight --json | python3 -c '
import json, sys
for line in sys.stdin:
    tensor = json.loads(line)
    for one in tensor.get("tensors", [tensor]):
        print(sorted(one))'
msckpt inspect a --tensor decoder.nothing.weight || echo "exit $?"
# The layout of the run that saved the checkpoint, if it is known.
cp -r "$MS_SOURCE"/tests/data/{megatron_dist,hf_llama_tiny} .
msckpt inspect megatron_dist 2>/dev/null
msckpt inspect hf_llama_tiny 2>/dev/null
# The iteration is printed once, although the trainer state has it too.
msckpt convert --load-dir megatron_dist --save-dir resumed 2>/dev/null
msckpt inspect resumed | grep -c iteration
