# Command lines of MindSpeed-LLM's and Megatron's example scripts, with msckpt convert as program and test models.
data="$MS_SOURCE/tests/data"
for model in hf_llama_tiny hf_qwen2_tiny hf_qwen3_moe_tiny hf_glm4_moe_tiny hf_deepseek_v3_tiny; do cp -r "$data/$model" $model; done
quiet() { "$@" 2>/dev/null; }

# convert_ckpt_v2.py, llama2, there and back.
quiet msckpt convert \
    --load-model-type hf \
    --save-model-type mg \
    --target-tensor-parallel-size 2 \
    --target-pipeline-parallel-size 1 \
    --load-dir ./hf_llama_tiny/ \
    --save-dir ./Llama2-mcore/ \
    --model-type-hf llama2
quiet msckpt convert \
    --load-model-type mg \
    --save-model-type hf \
    --load-dir ./Llama2-mcore/ \
    --save-dir ./llama-2-7b-hf/ \
    --hf-cfg-dir ./hf_llama_tiny/ \
    --model-type-hf llama2
cmp hf_llama_tiny/model.safetensors llama-2-7b-hf/model.safetensors && echo equal

# convert_ckpt.py, Qwen2.5 as a llama2 with biases.
msckpt convert \
    --use-mcore-models \
    --model-type GPT \
    --load-model-type hf \
    --save-model-type mg \
    --target-tensor-parallel-size 2 \
    --target-pipeline-parallel-size 2 \
    --add-qkv-bias \
    --load-dir ./hf_qwen2_tiny/ \
    --save-dir ./qwen2.5_mcore/ \
    --tokenizer-model ./hf_qwen2_tiny/tokenizer.json \
    --model-type-hf llama2 \
    --params-dtype bf16 \
    --spec mindspeed_llm.tasks.models.spec.qwen2_spec layer_spec 2>&1 | grep "has no effect" | sed 's/.*convert\] //'
quiet msckpt verify qwen2.5_mcore --against hf_qwen2_tiny

# Qwen3-MoE: the conversion back repeats the layout flags.
quiet msckpt convert \
    --load-model-type hf \
    --save-model-type mg \
    --target-tensor-parallel-size 2 \
    --target-pipeline-parallel-size 2 \
    --target-expert-parallel-size 2 \
    --load-dir ./hf_qwen3_moe_tiny/ \
    --save-dir ./qwen3_moe_mcore/ \
    --moe-grouped-gemm \
    --expert-tensor-parallel-size 1 \
    --model-type-hf qwen3-moe
quiet msckpt convert \
    --load-model-type mg \
    --save-model-type hf \
    --load-dir ./qwen3_moe_mcore/ \
    --save-dir ./qwen3_moe_hf/ \
    --moe-grouped-gemm \
    --expert-tensor-parallel-size 1 \
    --model-type-hf qwen3-moe
cmp hf_qwen3_moe_tiny/model.safetensors qwen3_moe_hf/model.safetensors && echo equal

# GLM-4.5.
quiet msckpt convert \
   --load-dir ./hf_glm4_moe_tiny/ \
   --save-dir ./hf2mg-GLM-4.5 \
   --model-type-hf glm45 \
   --load-model-type hf \
   --save-model-type mg \
   --target-tensor-parallel-size 2 \
   --target-pipeline-parallel-size 2 \
   --target-expert-parallel-size 1 \
   --first-k-dense-replace 1 \
   --moe-grouped-gemm
quiet msckpt verify hf2mg-GLM-4.5 --against hf_glm4_moe_tiny

# DeepSeek-V3: no-op layers, virtual stages, multi-token prediction.
quiet msckpt convert \
    --moe-grouped-gemm \
    --target-tensor-parallel-size 2 \
    --target-pipeline-parallel-size 2 \
    --target-expert-parallel-size 2 \
    --load-dir ./hf_deepseek_v3_tiny \
    --save-dir ./deepseek3-mcore \
    --save-model-type mg \
    --num-layers 4 \
    --mtp-num-layers 1 \
    --num-layers-per-virtual-pipeline-stage 1 \
    --noop-layers 1,3
quiet msckpt convert \
    --moe-grouped-gemm \
    --source-tensor-parallel-size 2 \
    --source-pipeline-parallel-size 2 \
    --source-expert-parallel-size 2 \
    --load-dir ./deepseek3-mcore \
    --save-dir ./deepseek3-hf \
    --save-model-type hf \
    --num-layers 4 \
    --mtp-num-layers 1 \
    --num-layers-per-virtual-pipeline-stage 1 \
    --noop-layers 1,3
cmp hf_deepseek_v3_tiny/model.safetensors deepseek3-hf/model.safetensors && echo equal

# Megatron's tools/checkpoint/convert.py.
quiet msckpt convert \
    --model-type GPT \
    --loader core \
    --saver core \
    --target-tensor-parallel-size 1 \
    --target-pipeline-parallel-size 3 \
    --load-dir "$data/megatron/swiglu_tp2_pp2_distributed" \
    --save-dir ./megatron \
    --megatron-path ./Megatron-LM \
    --saver-transformer-impl transformer_engine \
    --max-queue-size 50 \
    --no-checking
quiet msckpt verify megatron --against "$data/megatron/swiglu_tp2_pp2_distributed"

# Command lines that are refused.
refused() { msckpt convert --load-dir hf_llama_tiny --save-dir refused --save-model-type mg "$@"; echo "exit $?"; }
refused --model-type-hf qwen3
refused --model-type-hf mamba2
refused --num-layers 1
refused --mtp-num-layers 1
refused --mla-mm-split
refused --lora-load ckpt --lora-r 16 --lora-alpha 32 --lora-target-modules linear_qkv linear_proj
refused --model-type BERT
refused --schedules-method dualpipev --target-pipeline-parallel-size 2
refused --noop-layers 1,7 --target-pipeline-parallel-size 2
test -e refused || echo nothing written
