# Does a run continue from a conversion as from its source: a verdict per kind, exit 10 unless it continues exactly. diff and
# verify --against compare optimizer settings too, and flags that set them are refused if there is no optimizer state.
msckpt convert --load-dir "$MS_SOURCE/tests/data/megatron/swiglu_tp2_pp2_distributed" --save-dir ms 2>/dev/null
msckpt convert --load-dir ms --save-dir mg --to mg 2>/dev/null
msckpt diff --resume ms mg 2>/dev/null; echo "exit $?"
msckpt convert --load-dir ms --save-dir other --to mg --weight-decay 0.3 2>/dev/null
msckpt diff --resume ms other 2>/dev/null; echo "exit $?"
msckpt diff ms other 2>/dev/null; echo "exit $?"
msckpt verify other --against ms 2>/dev/null; echo "exit $?"
msckpt convert --load-dir ms --save-dir weights --to mg --drop-optimizer 2>/dev/null
msckpt diff --resume ms weights 2>/dev/null | tail -1
msckpt diff --resume ms "$MS_SOURCE/tests/data/hf_qwen2_tiny" 2>/dev/null | tail -1
check() { python3 -c "import json, sys; d = json.load(sys.stdin); print(d['schema'], d['verb'], $1)"; }
msckpt diff --resume --json ms other 2>/dev/null | check "d['verdict'], [(k['kind'], k['answer']) for k in d['kinds']]"
msckpt diff --json ms other 2>/dev/null | check "d['equal'], d['differences'], d['settings']"
msckpt convert --load-dir ms --save-dir x --to mg --adam-beta1 0.8 --dry-run --json 2>/dev/null | check "d['from_flags'], [text for text in d['carried'] if 'group' in text][0]"

msckpt convert --load-dir ms --save-dir x --to hf --drop-optimizer --lr 0.1; echo "exit $?"
msckpt convert --load-dir ms --save-dir x --to mg --drop-optimizer --lr 0.1; echo "exit $?"
msckpt convert --load-dir "$MS_SOURCE/tests/data/hf_llama_tiny" --save-dir x --to mg --lr 0.1; echo "exit $?"
msckpt convert --load-dir ms --save-dir x --to mg --adam-beta2 1.5; echo "exit $?"
