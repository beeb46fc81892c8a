# Conversion from and to Hugging Face, chained through stdin; errors and their exit codes.
set -o pipefail
model="$MS_SOURCE/tests/data/hf_llama_tiny"
cp -r "$model" hf && chmod -R u+w hf
msckpt convert --load-dir hf --save-dir ms --target-tensor-parallel-size 2 2>/dev/null |
  msckpt convert --load-dir - --save-dir back 2>/dev/null
cmp hf/model.safetensors back/model.safetensors && cmp hf/config.json back/config.json && echo equal
msckpt diff hf ms 2>/dev/null && echo same values
bin="$MS_SOURCE/tests/data/hf_llama_tiny_bin"
msckpt convert --load-dir "$bin" --save-dir from_bin --save-model-type hf 2>/dev/null
cmp hf/model.safetensors from_bin/model.safetensors && echo equal
msckpt convert --load-dir ms --save-dir mg --save-model-type mg --target-pipeline-parallel-size 2 2>/dev/null
cat mg/latest_checkpointed_iteration.txt && echo && ls mg/release
msckpt convert --load-dir mg --save-dir from_mg --save-model-type hf 2>/dev/null
cmp hf/model.safetensors from_mg/model.safetensors && echo equal
msckpt verify mg --against hf 2>/dev/null && echo verified
msckpt convert --load-dir mg --save-dir dist --save-model-type dist --target-tensor-parallel-size 2 2>/dev/null
cat dist/latest_checkpointed_iteration.txt && echo && ls -A dist/release
msckpt convert --load-dir dist --save-dir dcp --save-model-type dcp --target-data-parallel-size 3 2>/dev/null
ls -A dcp && msckpt verify dcp --against hf 2>/dev/null && echo verified
msckpt verify hf --against "$MS_SOURCE/tests/data/hf_qwen2_tiny" 2>/dev/null; echo "exit $?"
msckpt convert --load-dir hf --save-dir other --dry-run 2>/dev/null
msckpt convert --load-dir hf --save-dir other --dry-run 2>/dev/null | msckpt verify - ; echo "exit $?"
msckpt convert --load-dir hf --save-dir other --dry-run --json 2>/dev/null | tr ',' '\n' | grep '"schema"'
test -e other || echo nothing written

msckpt convert --load-dir "" --save-dir x; echo "exit $?"
msckpt convert --load-dir ms --save-dir back; echo "exit $?"
msckpt convert --load-dir ms --save-dir x --target-tensor-parallel-size 2; echo "exit $?"
msckpt convert --load-dir ms --save-dir mg --save-model-type mg; echo "exit $?"
msckpt convert --load-dir ms --save-dir x --save-model-type mg --target-norm-naming mcore; echo "exit $?"
msckpt convert --load-dir ms --save-dir x --use-distributed-optimizer; echo "exit $?"
msckpt convert --load-dir none --save-dir x; echo "exit $?"
truncate -s -1 hf/model.safetensors
msckpt convert --load-dir hf --save-dir x; echo "exit $?"
sed -i 's/"rope_type": "default"/"rope_type": "axial"/' hf/config.json
msckpt convert --load-dir hf --save-dir x; echo "exit $?"
