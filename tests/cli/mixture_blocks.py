"""Argument blocks of MindSpeed-LLM's pretraining scripts for mixtures of experts (c77308a), for argument_blocks.py: tables of
flags, what several scripts share once."""

SOURCE = ("Ascend/MindSpeed-LLM", "c77308a")

# In every script.
EVERY = """--use-mcore-models --use-distributed-optimizer --use-flash-attn --sequence-parallel --tokenizer-type PretrainedFromHF
  --tokenizer-name-or-path TOKENIZER --seq-length 4096 --micro-batch-size 1 --make-vocab-size-divisible-by 1
  --lr-decay-style cosine --untie-embeddings-and-output-weights --disable-bias-linear --attention-dropout 0.0
  --hidden-dropout 0.0 --position-embedding-type rope --normalization RMSNorm --use-fused-swiglu --use-fused-rmsnorm --swiglu
  --no-masked-softmax-fusion --attention-softmax-in-fp32 --clip-grad 1.0 --adam-beta1 0.9 --no-load-optim --no-load-rng --bf16
  --ckpt-format torch --data-path DATA_HF --log-interval 1 --moe-grouped-gemm --moe-permutation-async-comm
  --distributed-backend nccl --save CKPT --load LOAD --transformer-impl local """
FUSED_ROTARY = "--use-fused-rotary-pos-emb --use-rotary-position-embeddings "
RECOMPUTED = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
WITHOUT_EVALUATION = "--split 100,0,0 --save-interval 2000 --eval-interval 2000 --eval-iters 0 --train-iters 2000 "
HANDLER = "--handler-name GeneralPretrainHandler "
LATENT = """--spec mindspeed_llm.tasks.models.spec.deepseek_spec layer_spec --multi-latent-attention --qk-pos-emb-head-dim 64
  --qk-head-dim 128 --kv-lora-rank 512 --v-head-dim 128 --qk-layernorm """
YARN = "--rope-scaling-type yarn --beta-fast 32 --beta-slow 1 --rope-scaling-factor 40 --rope-scaling-original-max-position-embeddings 4096 "
NO_STATE_SAVED = "--no-save-optim --no-save-rng "

DEEPSEEK2_LITE = EVERY + FUSED_ROTARY + HANDLER + LATENT + YARN + NO_STATE_SAVED + """--shape-order BNSD --reuse-fp32-param
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --expert-model-parallel-size 8 --num-layers 27
  --hidden-size 2048 --ffn-hidden-size 10944 --num-attention-heads 16 --finetune --num-workers 8
  --max-position-embeddings 163840 --init-method-std 0.02 --min-lr 1.0e-8 --weight-decay 1e-1 --adam-beta2 0.95
  --initial-loss-scale 65536 --vocab-size 102400 --padded-vocab-size 102400 --rotary-base 10000
  --no-gradient-accumulation-fusion --norm-epsilon 1e-6 --split 99,1,0 --save-interval 1000 --eval-interval 10000
  --eval-iters 10 --rope-scaling-mscale 0.707 --rope-scaling-mscale-all-dim 0.707 --moe-alltoall-overlap-comm
  --moe-token-dispatcher-type alltoall_seq --moe-permute-fusion --first-k-dense-replace 1 --moe-layer-freq 1
  --n-shared-experts 2 --num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408
  --moe-router-load-balancing-type pai_megatron_aux_loss --moe-router-group-topk 1 --moe-router-num-groups 8
  --moe-aux-loss-coeff 0.01 --moe-router-topk-scaling-factor 1.0 --seq-aux --enable-hf2mg-convert
  --model-type-hf deepseek2-lite """
SIGMOIDS = """--moe-layer-freq 1 --n-shared-experts 1 --moe-router-load-balancing-type none --moe-router-num-groups 8
  --moe-router-group-topk 4 --moe-router-topk 8 --moe-router-topk-scaling-factor 2.5 --moe-aux-loss-coeff 0.0001
  --norm-topk-prob --moe-router-score-function sigmoid --moe-router-enable-expert-bias """
DEEPSEEK3_MINDSPORE = EVERY + FUSED_ROTARY + LATENT + YARN + NO_STATE_SAVED + RECOMPUTED + WITHOUT_EVALUATION + SIGMOIDS + """
  --no-gradient-accumulation-fusion --reset-attention-mask --no-shared-storage --reuse-fp32-param --context-parallel-size 1
  --context-parallel-algo ulysses_cp_algo --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128
  --max-position-embeddings 163840 --lr 1.0e-5 --init-method-std 0.02 --min-lr 1.0e-7 --weight-decay 1e-2
  --lr-warmup-iters 500 --adam-beta2 0.999 --initial-loss-scale 65536 --vocab-size 129280 --padded-vocab-size 129280
  --rotary-base 10000 --norm-epsilon 1e-6 --use-ascend-coc --coc-fused-kernel --distributed-timeout-minutes 120
  --q-lora-rank 1536 --mla-fa-without-pad --rope-scaling-mscale 1.0 --rope-scaling-mscale-all-dim 1.0 --moe-router-dtype fp32
  --moe-token-dispatcher-type alltoall_seq --seq-aux --moe-tp-extend-ep --mtp-num-layers 1 --mtp-loss-scaling-factor 0.3
  --mtp-mem-efficient-logits --ai-framework mindspore """
LING = EVERY + FUSED_ROTARY + HANDLER + NO_STATE_SAVED + WITHOUT_EVALUATION + SIGMOIDS + """--spec
  mindspeed_llm.tasks.models.spec.bailing_spec layer_spec --max-position-embeddings 65536 --vocab-size 157184
  --padded-vocab-size 157184 --rotary-base 600000 --rotary-percent 0.5 --norm-epsilon 1e-6 --init-method-std 0.02
  --qk-layernorm --group-query-attention --num-experts 256 --router-gating-in-fp32 --moe-token-dispatcher-type alltoall_seq
  --moe-alltoall-overlap-comm --global-batch-size 128 --lr 1.0e-5 --weight-decay 1e-2 --adam-beta2 0.999
  --initial-loss-scale 65536 --enable-hf2mg-convert --model-type-hf bailing_mini """
QWEN3 = EVERY + FUSED_ROTARY + WITHOUT_EVALUATION + """--spec mindspeed_llm.tasks.models.spec.qwen3_spec layer_spec
  --kv-channels 128 --qk-layernorm --norm-topk-prob --max-position-embeddings 4096 --padded-vocab-size 151936
  --rotary-base 1000000 --group-query-attention --num-query-groups 4 --num-experts 128 --moe-router-topk 8
  --moe-router-load-balancing-type aux_loss --moe-token-dispatcher-type alltoall_seq --moe-aux-loss-coeff 0.001
  --moe-layer-freq -1 --first-k-dense-replace -1 --gemm-gradient-accumulation-fusion --lr 1.25e-6 --min-lr 1.25e-7
  --weight-decay 1e-1 --lr-warmup-fraction 0.01 --init-method-std 0.01 --adam-beta2 0.95 --initial-loss-scale 4096 --seed 42
  --no-shared-storage --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --context-parallel-size 1 """

# Reduced as those of argument_blocks.SMALL.
SIZES = {"num_experts": 8, "moe_router_topk": 4, "moe_ffn_hidden_size": 16, "q_lora_rank": 16, "kv_lora_rank": 16,
         "qk_head_dim": 8, "qk_pos_emb_head_dim": 4, "v_head_dim": 8, "expert_model_parallel_size": 2, "vocab_size": 512,
         "moe_router_num_groups": 4, "moe_router_group_topk": 2, "num_layers_per_virtual_pipeline_stage": 2}

# Name, script, flags, data-parallel size, what else is changed.
BLOCKS = [
    ("deepseek2_lite_16p", "examples/mcore/deepseek2_lite/pretrain_deepseek2_lite_16b_ptd_16p.sh",
     DEEPSEEK2_LITE + """--global-batch-size 128 --lr 2e-6 --train-iters 2000 --lr-decay-iters 2000 --lr-warmup-iters 100
     --manual-gc --manual-gc-interval 30""", 2, {"moe_router_group_topk": 1, "moe_router_topk": 2}),
    ("deepseek2_lite_8p", "examples/mcore/deepseek2_lite/pretrain_deepseek2_lite_16b_ptd_8p.sh",
     DEEPSEEK2_LITE + RECOMPUTED + "--global-batch-size 8 --lr 2e-5 --train-iters 462240 --lr-decay-iters 462240 --lr-warmup-iters 1920",
     2, {"moe_router_group_topk": 1, "moe_router_topk": 2}),
    ("deepseek3_1b_mindspore", "examples/mindspore/deepseek3/pretrain_deepseek3_1b_4k_8p_ms.sh",
     DEEPSEEK3_MINDSPORE + """--noop-layers 3 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2
     --expert-model-parallel-size 4 --num-layers 4 --num-experts 64 --global-batch-size 16 --first-k-dense-replace 1""", 2, {}),
    ("deepseek3_671b_mindspore", "examples/mindspore/deepseek3/pretrain_deepseek3_671b_4k_ms.sh",
     DEEPSEEK3_MINDSPORE + """--noop-layers 61,62,63 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 8
     --expert-model-parallel-size 8 --num-layers 64 --num-experts 256 --global-batch-size 3840 --first-k-dense-replace 3""",
     1, {"noop_layers": "7", "num_layers": 8, "expert_model_parallel_size": 1}),
    ("kimi2_18b", "examples/mcore/kimi2/pretrain_kimi2_18b_4k_8p_ptd.sh",
     EVERY + FUSED_ROTARY + HANDLER + LATENT + NO_STATE_SAVED + RECOMPUTED + WITHOUT_EVALUATION + """
     --gemm-gradient-accumulation-fusion --no-shared-storage --reuse-fp32-param --tensor-model-parallel-size 2
     --pipeline-model-parallel-size 1 --expert-model-parallel-size 4 --context-parallel-size 1
     --context-parallel-algo ulysses_cp_algo --num-layers 2 --hidden-size 7168 --ffn-hidden-size 18432
     --num-attention-heads 64 --max-position-embeddings 131072 --global-batch-size 16 --lr 1.0e-5 --init-method-std 0.02
     --min-lr 1.0e-7 --weight-decay 1e-2 --lr-warmup-iters 0 --adam-beta2 0.999 --initial-loss-scale 65536
     --vocab-size 163840 --padded-vocab-size 163840 --rotary-base 50000 --norm-epsilon 1e-6 --distributed-timeout-minutes 120
     --q-lora-rank 1536 --mla-fa-without-pad --beta-fast 1 --beta-slow 1 --rope-scaling-factor 32 --rope-scaling-mscale 1.0
     --rope-scaling-mscale-all-dim 1.0 --rope-scaling-original-max-position-embeddings 4096 --rope-scaling-type yarn
     --moe-token-dispatcher-type alltoall --use-fused-moe-token-permute-and-unpermute --moe-alltoall-overlap-comm
     --first-k-dense-replace 1 --moe-layer-freq 1 --n-shared-experts 1 --moe-ffn-hidden-size 2048 --num-experts 384
     --moe-router-topk 8 --moe-router-load-balancing-type none --moe-router-num-groups 1
     --moe-router-topk-scaling-factor 2.827 --moe-aux-loss-coeff 0.0001 --seq-aux --norm-topk-prob
     --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-dtype fp32""",
     2, {"num_layers": 2, "moe_router_num_groups": 1}),
    ("ling_mini_16b", "examples/mcore/ling_v2/pretrain_ling_mini_16b_4k_ptd.sh",
     LING + """--hidden-size 2048 --ffn-hidden-size 5120 --reuse-fp32-param --num-layers 20 --tensor-model-parallel-size 1
     --pipeline-model-parallel-size 1 --expert-model-parallel-size 8 --num-query-groups 4 --num-attention-heads 16
     --first-k-dense-replace 1 --moe-ffn-hidden-size 512""", 2, {}),
    ("ling_1t", "examples/mcore/ling_v2/pretrain_ling_1T_4k_ptd_A3.sh",
     LING + RECOMPUTED + """--hidden-size 8192 --ffn-hidden-size 18432 --num-layers 80 --tensor-model-parallel-size 4
     --pipeline-model-parallel-size 4 --expert-model-parallel-size 16 --no-shared-storage --num-query-groups 8
     --num-attention-heads 64 --moe-tp-extend-ep --first-k-dense-replace 4 --moe-ffn-hidden-size 2048 --swap-optimizer""",
     1, {"num_layers": 8, "expert_model_parallel_size": 1}),
    ("ling_flash_100b", "examples/mcore/ling_v2/pretrain_ling_flash_100b_4k_ptd_A3.sh",
     LING + RECOMPUTED + """--mtp-num-layers 1 --hidden-size 4096 --ffn-hidden-size 9216 --num-layers 32
     --tensor-model-parallel-size 4 --pipeline-model-parallel-size 1 --expert-model-parallel-size 4 --no-shared-storage
     --num-query-groups 4 --num-attention-heads 32 --moe-tp-extend-ep --first-k-dense-replace 1 --moe-ffn-hidden-size 1024
     --mtp-mem-efficient-logits --swap-optimizer""", 1, {"expert_model_parallel_size": 1}),
    ("qwen3_235b_a22b", "examples/mcore/qwen3_moe/pretrain_qwen3_235b_a22b_4k_A3_ptd.sh",
     QWEN3 + HANDLER + """--noop-layers 94,95 --num-layers 96 --hidden-size 4096 --ffn-hidden-size 12288
     --num-attention-heads 64 --moe-ffn-hidden-size 1536 --moe-alltoall-overlap-comm --reuse-fp32-param --norm-epsilon 1e-6
     --overlap-grad-reduce --overlap-param-gather --global-batch-size 1024 --disable-gloo-group --recompute-granularity full
     --recompute-method block --recompute-num-layers 8 --expert-model-parallel-size 32
     --context-parallel-algo megatron_cp_algo --num-layers-per-virtual-pipeline-stage 8 --enable-hf2mg-convert
     --model-type-hf qwen3-moe""", 2, {"num_layers": 8, "noop_layers": "6,7"}),
    ("qwen3_480b", "examples/mcore/qwen3_moe/pretrain_qwen3_480b_4k_A3_ptd.sh",
     QWEN3.replace("alltoall_seq", "alltoall").replace("--tensor-model-parallel-size 1", "--tensor-model-parallel-size 4") +
     HANDLER + RECOMPUTED + """--noop-layers 0,63 --num-layers 64 --hidden-size 6144 --ffn-hidden-size 8192
     --num-attention-heads 96 --num-query-groups 8 --rotary-base 10000000 --padded-vocab-size 151936
     --moe-ffn-hidden-size 2560 --moe-alltoall-overlap-comm --moe-permute-fusion --norm-epsilon 1e-6 --overlap-grad-reduce
     --overlap-param-gather --swap-attention --swap-optimizer --global-batch-size 64 --expert-model-parallel-size 32
     --expert-tensor-parallel-size 1 --context-parallel-algo megatron_cp_algo --num-layers-per-virtual-pipeline-stage 2
     --manual-gc --manual-gc-interval 10 --enable-hf2mg-convert --model-type-hf qwen3-moe""",
     1, {"num_layers": 8, "noop_layers": "0,7"}),
    ("glm45_air_mindspore", "examples/mindspore/glm45-moe/pretrain_glm45_moe_106b_4k_A3_ms.sh",
     EVERY + RECOMPUTED + WITHOUT_EVALUATION + """--moe-alltoall-overlap-comm --moe-token-dispatcher-type alltoall_seq
     --first-k-dense-replace 1 --moe-layer-freq 1 --n-shared-experts 1 --num-experts 128 --moe-router-topk 8
     --moe-ffn-hidden-size 1408 --moe-router-load-balancing-type none --moe-router-num-groups 1 --moe-router-group-topk 1
     --norm-topk-prob --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-dtype fp32
     --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 16 --noop-layers 1,47
     --mtp-num-layers 1 --post-norm --kv-channels 128 --num-layers 48 --hidden-size 4096 --ffn-hidden-size 10944
     --num-attention-heads 96 --global-batch-size 64 --max-position-embeddings 131072 --padded-vocab-size 151552
     --group-query-attention --num-query-groups 8 --add-qkv-bias --rotary-percent 0.5 --no-rope-fusion --lr 1.25e-6
     --norm-epsilon 1e-05 --init-method-std 0.01 --min-lr 1.25e-7 --weight-decay 1e-1 --lr-warmup-fraction 0.01
     --initial-loss-scale 4096 --adam-beta2 0.95 --no-shared-storage --no-gradient-accumulation-fusion
     --no-bias-swiglu-fusion --ai-framework mindspore""", 2,
     {"num_layers": 8, "noop_layers": "1,7", "moe_router_num_groups": 1, "moe_router_group_topk": 1}),
    ("qwen3_30b_a3b_mindspore", "examples/mindspore/qwen3_moe/pretrain_qwen3_30b_a3b_4K_ms.sh",
     QWEN3 + RECOMPUTED + """--num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32
     --no-gradient-accumulation-fusion --moe-ffn-hidden-size 768 --expert-model-parallel-size 4 --global-batch-size 256
     --context-parallel-algo ulysses_cp_algo --ai-framework mindspore""", 2, {}),
    ("minimax_m27_229b", "examples/mcore/minimax27/pretrain_minimax27_229b_4K_A3_ptd.sh",
     EVERY + FUSED_ROTARY + HANDLER + RECOMPUTED + WITHOUT_EVALUATION + """--spec
     mindspeed_llm.tasks.models.spec.minimax_spec layer_spec --kv-channels 128 --qk-layernorm --q-lora-rank 6144
     --kv-lora-rank 1024 --norm-topk-prob --max-position-embeddings 204800 --num-layers 64 --hidden-size 3072
     --ffn-hidden-size 1536 --num-attention-heads 48 --rotary-base 5000000 --padded-vocab-size 200064 --norm-epsilon 1e-6
     --no-gradient-accumulation-fusion --group-query-attention --num-query-groups 8 --enable-hf2mg-convert
     --model-type-hf minimax_m2 --num-experts 256 --moe-router-topk 8 --moe-router-load-balancing-type aux_loss
     --moe-ffn-hidden-size 1536 --moe-token-dispatcher-type alltoall_seq --moe-layer-freq -1 --first-k-dense-replace -1
     --moe-aux-loss-coeff 0.001 --moe-router-enable-expert-bias --moe-router-dtype fp32 --moe-alltoall-overlap-comm
     --gemm-gradient-accumulation-fusion --noop-layers 62,63 --global-batch-size 2048 --lr 1.25e-6 --min-lr 1.25e-7
     --weight-decay 1e-1 --lr-warmup-fraction 0.01 --init-method-std 0.01 --adam-beta2 0.95 --initial-loss-scale 4096
     --seed 42 --no-shared-storage --manual-gc --manual-gc-interval 15 --tensor-model-parallel-size 1
     --pipeline-model-parallel-size 2 --expert-model-parallel-size 64 --context-parallel-size 1
     --context-parallel-algo ulysses_cp_algo --num-layers-per-virtual-pipeline-stage 8""",
     2, {"num_layers": 8, "noop_layers": "6,7"}),
]
