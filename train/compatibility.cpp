#include "train/compatibility.h"

#include <initializer_list>
#include <utility>

namespace ms::train {
namespace {

using Flags = std::initializer_list<const char*>;

void accept(core::ConfigFields& fields, Flags flags, int num_values, const char* notice) {
  for (const char* flag : flags) fields.accept_with_notice(flag, num_values, notice);
}

void refuse(core::ConfigFields& fields, Flags flags, const char* why) {
  for (const char* flag : flags) fields.refuse(flag, why);
}

void add_deprecated_spellings(core::ConfigFields& fields) {
  fields.alias("eval-only", "skip_train", "true");
  fields.alias("disable-bias-linear", "add_bias_linear", "false");
  fields.alias("rotary-emb-base", "rotary_base");
  fields.alias("layernorm-epsilon", "norm_epsilon");
  fields.alias("add-rmsnorm-offset", "apply_layernorm_1p", "true");  // MindSpeed-LLM
  fields.alias("final-logit-softcapping", "output_logit_softcapping");
  fields.alias("embedding-multiplier-scale", "embedding_multiplier");  // MindSpeed-LLM, as the next one
  fields.alias("partial-rotary-factor", "rotary_percent");
  fields.alias("openai-gelu", "bias_gelu_fusion", "true");       // the same formula
  fields.alias("use-glm-rope", "rotary_interleaved", "true");    // MindSpeed-LLM; with --rotary-percent, as GLM's
  fields.alias("moe-intermediate-size", "moe_ffn_hidden_size");  // MindSpeed-LLM
  fields.alias("shared-expert-gate", "moe_shared_expert_gate", "true");           // the same
  fields.alias("multi-head-latent-attention", "multi_latent_attention", "true");  // older MindSpeed-LLM, as these two
  fields.alias("qk-nope-head-dim", "qk_head_dim");
  fields.alias("qk-rope-head-dim", "qk_pos_emb_head_dim");
  fields.alias("low-freq-factor", "rope_scaling_low_freq_factor");
  fields.alias("high-freq-factor", "rope_scaling_high_freq_factor");
  fields.alias("beta-fast", "rope_scaling_beta_fast");
  fields.alias("beta-slow", "rope_scaling_beta_slow");
  fields.alias("short-factor", "rope_scaling_short_factor");
  fields.alias("long-factor", "rope_scaling_long_factor");
  fields.alias("original-max-position-embeddings", "rope_scaling_original_max_position_embeddings");
  fields.alias("mscale", "rope_scaling_mscale");
  fields.alias("mscale-all-dim", "rope_scaling_mscale_all_dim");
  fields.alias("rotary-scaling-factor", "rope_scaling_factor");
  fields.alias("padded-vocab-size", "vocab_size");  // MindSpeed-LLM: the rows of the embedding, padding included
  fields.alias("no-position-embedding", "add_position_embedding", "false");
  fields.stand_for("use-rotary-position-embeddings", {"--position-embedding-type", "rope"});
  // Llama 3's, as Megatron's RotaryEmbedding has it: the original context is no flag there.
  fields.set_defaults("use-rope-scaling", {"--rope-scaling-type", "llama3", "--rope-scaling-factor", "8",
                                           "--rope-scaling-original-max-position-embeddings", "8192"});
  fields.stand_for("rotary-seq-len-interpolation-factor",
                   {"--rope-scaling-type", "linear", "--rope-scaling-factor", core::ConfigFields::kValue});
}

void add_what_is_always_so(core::ConfigFields& fields) {
  accept(fields, {"cross-entropy-loss-fusion", "use-fusion-attn-v2"}, 0, "this operator is always fused here");
  accept(fields,
         {"no-masked-softmax-fusion", "no-bias-swiglu-fusion", "no-rope-fusion", "no-bias-dropout-fusion",
          "no-persist-layer-norm", "apply-rope-fusion"},
         0, "which operators are fused changes no result here");
  accept(fields, {"attention-softmax-in-fp32", "accumulate-allreduce-grads-in-fp32"}, 0, "always so here");
  accept(fields, {"use-mcore-models", "use-legacy-models"}, 0, "there is one kind of model here, with the mcore names");
  accept(fields, {"transformer-impl", "attention-backend"}, 1, "there is one implementation here");
  accept(fields, {"spec"}, core::ConfigFields::kAnyNumber, "the layers are built from the flags of the model");
  accept(fields, {"mla-fa-without-pad"}, 0, "attention never pads the heads of values to the size of the keys'");
  accept(fields, {"mla-mm-split"}, 0,
         "one product gives the same elements as the two parts of it; checkpoints have one weight for both");
  accept(fields, {"mla-fa-divide-qk"}, 0, "how attention reads queries and keys changes no result");
  accept(fields, {"op-cal-tflops"}, 0, "every line has the TFLOP/s and tokens per second");
  accept(fields, {"cross-entropy-fusion-impl"}, 1, "there is one implementation here");
  accept(fields, {"use-transformer-engine-op-fuser"}, 0, "which operators are fused changes no result here");
  accept(fields, {"apply-query-key-layer-scaling"}, 0,
         "guards fp16 scores against overflow by a factor that the softmax takes back; scores are fp32 here");
  accept(fields, {"no-load-rng", "no-save-rng"}, 0, "random numbers are a function of the seed and the step");
  accept(fields, {"use-cpu-initialization"}, 0, "always so: initial weights depend on neither device nor layout");
  accept(fields, {"no-initialization"}, 0, "initial weights cost nothing beside a load");
  accept(fields, {"no-shared-storage"}, 0, "a rank builds the sample indices that it does not find");
  accept(fields, {"tokenizer-not-use-fast"}, 0, "there is one implementation of each tokenizer");
  accept(fields, {"enable-hf2mg-convert"}, 0, "--load reads a Hugging Face folder as it is");
  accept(fields, {"model-type-hf", "handler-name"}, 1, "read from what --load and --data-path name");
  accept(fields, {"num-workers", "workers"}, 1, "samples are read by the rank that needs them");
  accept(fields, {"ckpt-format"}, 1, "checkpoints are native; msckpt convert makes other formats");
  accept(fields, {"use-dist-ckpt", "auto-detect-ckpt-format"}, 0, "a checkpoint's format is always detected");
  accept(fields, {"dist-ckpt-format"}, 1, "checkpoints are native; msckpt convert makes other formats");
  accept(fields, {"use-fused-ring-attention-update"}, 0, "blocks are always added in one pass");
  accept(fields, {"kv-head-repeat-before-uly-alltoall"}, 0, "keys and values are repeated as little as they must be");
  accept(fields, {"attention-mask-on-cpu", "adaptive-cp-without-coarse", "adaptive-cp-dynamic-attn-mask"}, 0,
         "adaptive_cp_algo plans each micro-batch from the ends of its documents, on a grid of up to 1024 cells");
  const char* of_alibi = "about --position-embedding-type alibi, which is the same for every causal query";
  accept(fields, {"square-alibi-mask", "fill-neg-inf", "alibi-diagonal-opposite"}, 0, of_alibi);
  fields.accept_with_notice("alibi-fusion-attn-type", 1, of_alibi, {"0", "2"});
  accept(fields, {"tokenizer-padding-side"}, 1, "samples are cut from the documents without padding");
  accept(fields, {"ai-framework"}, 1, "there is one framework here");
  accept(fields, {"shape-order"}, 1, "the order of axes within attention changes no result");
  accept(fields, {"tiktoken-pattern", "tiktoken-num-special-tokens"}, 1, "about TikTokenizer, which is not built in");
  accept(fields, {"tiktoken-special-tokens"}, core::ConfigFields::kAnyNumber,
         "about TikTokenizer, which is not built in");
  fields.accept_with_notice("data-impl", 1, "always mmap", {"mmap", "infer"});
  fields.accept_with_notice("dataloader-type", 1, "always single", {"single"});
}

// Of mixtures of experts, whose flags are those of the model and of features/mixture_of_experts.h.
void add_flags_of_experts(core::ConfigFields& fields) {
  accept(fields, {"moe-grouped-gemm", "moe-use-legacy-grouped-gemm", "gemm-gradient-accumulation-fusion"}, 0,
         "the products of all experts are always one operator, which adds gradients of weights to main_grad");
  accept(fields, {"moe-permute-fusion", "use-fused-moe-token-permute-and-unpermute", "moe-router-fusion"}, 0,
         "this operator is always fused here");
  accept(fields, {"router-gating-in-fp32", "topk-softmax-in-fp32"}, 0, "the router's scores are always fp32");
  accept(fields, {"moe-permutation-async-comm"}, 0,
         "always so: rows are counted and sorted while tokens arrive; --moe-alltoall-overlap-comm hides more");
  accept(
      fields, {"moe-unperm2-mem-optim", "moe-unperm2-mem-optim-swap"}, 0,
      "the gradients of the experts' weights need no result of the experts here: none is kept that could leave memory");
  accept(fields, {"input-jitter"}, 0, "MindSpeed-LLM reads it nowhere; --moe-input-jitter-eps has the noise");
  fields.accept_with_notice("moe-model-type", 1, "always megatron_moe", {"megatron_moe"});
}

// How checkpoints are written and read, of which our own have one way that every layout reads.
void add_checkpoint_flags(core::ConfigFields& fields) {
  accept(fields, {"use-persistent-ckpt-worker"}, 0, "a rank's writer lives as long as the run");
  accept(fields, {"async-strategy"}, 1, "there is one background writer here; see --ckpt-writer");
  accept(fields, {"async-ckpt-use-cpu-shm", "async-ckpt-use-cached-metadata"}, 0,
         "a snapshot is copied within the rank's memory");
  accept(fields, {"dist-ckpt-strictness"}, 1, "a tensor that is missing or has another shape is always an error");
  accept(fields, {"dist-ckpt-optim-fully-reshardable", "dist-ckpt-optim-mem-efficient"}, 0,
         "a checkpoint loads on every layout");
  accept(fields, {"ckpt-fully-parallel-load"}, 0, "a rank reads what it needs itself");
  accept(fields, {"ckpt-assume-constant-structure"}, 0, "which shards a rank writes is computed anew in microseconds");
  accept(fields, {"verify-integrity"}, 0, "checksums are always verified");
  accept(fields, {"enable-mg2hf-convert"}, 0, "msckpt convert --to hf makes the Hugging Face folder");
  accept(fields, {"hf-cfg-dir"}, 1, "msckpt convert --to hf makes the Hugging Face folder");
}

// What a run reports, and to whom.
void add_report_flags(core::ConfigFields& fields) {
  accept(fields, {"logging-level"}, 1, "a number of Python's logging; --log-level sets the level here");
  accept(fields, {"log-progress"}, 0, "--metrics-path has the progress of every step");
  accept(fields, {"timing-log-option"}, 1, "--timing-log-level prints the minimum and the maximum over the ranks");
  accept(fields, {"enable-one-logger", "no-one-logger", "one-logger-async"}, 0,
         "nothing is sent to a service; --tensorboard-dir and --metrics-path have the same numbers");
  accept(fields, {"one-logger-project", "one-logger-run-name"}, 1,
         "nothing is sent to a service; --tensorboard-dir and --metrics-path have the same numbers");
  accept(fields, {"disable-straggler-on-startup"}, 0, "leave out --log-straggler: no controller switches it on later");
  accept(fields, {"straggler-ctrlr-port"}, 1, "--log-straggler is on for the whole run; no controller switches it");
  accept(
      fields,
      {"flight-recorder-dump-on-timeout", "no-flight-recorder-dump-on-timeout", "flight-recorder-include-stack-trace",
       "flight-recorder-include-only-active", "no-flight-recorder-include-only-active",
       "flight-recorder-extra-dump-on-exec", "no-flight-recorder-extra-dump-on-exec"},
      0, "every operation is in its rank's file as soon as it is posted, with the phase of the step; msprof flight");
  accept(fields, {"wandb-project", "wandb-entity", "wandb-exp-name", "wandb-save-dir"}, 1,
         "nothing is sent to a service; --tensorboard-dir and --metrics-path have the same numbers");
  accept(fields, {"use-pytorch-profiler"}, 0,
         "--profile records a trace of our own; msprof convert makes Chrome's JSON");
  fields.accept_with_notice("rerun-mode", 1,
                            "a step is checked as --check-for-nan-in-loss-and-grad says, never run again",
                            {"disabled", "validate_results"});
  accept(fields, {"error-injection-rate", "error-injection-type"}, 1,
         "injects faults into the comparison of --rerun-mode, which runs no step again here");
  accept(fields, {"test-mode"}, 0, "turns on assertions within Megatron's attention, which compute nothing");
}

void add_accelerator_flags(core::ConfigFields& fields) {
  accept(fields,
         {"te-rng-tracker", "enable-cuda-graph", "external-cuda-graph", "disable-gloo-process-groups",
          "enable-gloo-process-groups", "manual-gc-eval"},
         0, "has meaning on an accelerator only");
  accept(fields, {"cuda-graph-impl", "cuda-graph-warmup-steps"}, 1, "has meaning on an accelerator only");
  accept(fields, {"cuda-graph-modules", "cuda-graph-scope"}, core::ConfigFields::kAnyNumber,
         "has meaning on an accelerator only");
  accept(fields,
         {"jit-compile", "manual-gc", "use-cuda-graph", "no-scatter-gather-tensors-in-pipeline",
          "param-and-grad-buffer-pad", "megatron-cp-in-bnsd", "no-create-attention-mask-in-dataloader",
          "no-barrier-with-level-1-timing", "ddp-pad-buckets-for-high-nccl-busbw"},
         0, "has meaning on an accelerator only");
  accept(fields,
         {"empty-unused-memory-level", "manual-gc-interval", "hccl-group-buffer", "nccl-communicator-config-path",
          "local-rank"},
         1, "has meaning on an accelerator only");
  accept(fields, {"longrope-freqs-type"}, 1, "the frequencies are the same either way");
  accept(fields, {"distributed-backend"}, 1, "MPI carries all communication here");
  accept(fields, {"DDP-impl"}, 1, "gradients are always reduced from one buffer here");
  accept(fields,
         {"no-delay-grad-reduce", "delay-grad-reduce", "delay-param-gather", "align-grad-reduce",
          "overlap-p2p-communication-warmup-flush"},
         0, "messages are posted as soon as they can be; the result is the same");
  accept(fields, {"reset-bucket-group-order"}, 0, "always so with --overlap-grad-reduce, from the second step on");
  accept(fields, {"no-async-tensor-model-parallel-allreduce"}, 0, "always so without --tp-comm-overlap");
  accept(fields, {"coc-fused-kernel"}, 0, "products are cut as --coc-parallel-num says");
  accept(fields, {"suggested-communication-unit-size"}, 1, "--use-megatron-fsdp reduces and gathers a layer at once");
  accept(fields, {"fsdp-double-buffer"}, 0,
         "always so with --use-megatron-fsdp: one layer is used, the next is on its way");
  accept(fields, {"no-gradient-reduce-div-fusion"}, 0, "gradients are divided once, in the loss");
  accept(fields, {"init-model-with-meta-device"}, 0, "always so: initial weights are drawn one tensor at a time");
  accept(fields, {"optimize-send-recv-comm", "optimize-vpp-send-recv-comm"}, 0,
         "the messages of each direction between two stages have an order of their own here, and no send waits");
}

void add_what_is_not_built(core::ConfigFields& fields) {
  refuse(fields,
         {"fp8-format", "fp8-recipe", "fp8-amax-history-len", "fp8-amax-compute-algo", "fp8-param-gather", "fp8-margin",
          "first-last-layers-bf16"},
         "fp8 is not supported; use --bf16");
  refuse(fields, {"adaptive-recompute-device-swap", "smart-swap", "virtual-optimizer"},
         "this way to save memory is not supported yet; leave it out");
  refuse(fields, {"fsdp2-config-path"},
         "say --use-torch-fsdp2; sharding_size N is --num-distributed-optimizer-instances (data-parallel size / N)");
  refuse(fields, {"zero-stage"},
         "say it in the file of --deepspeed_config, or --use-megatron-fsdp --data-parallel-sharding-strategy: optim is "
         "stage 1, optim_grads stage 2, "
         "optim_grads_params stage 3");
  refuse(fields, {"adaptive-cp-manually-set-mask-list"},
         "adaptive_cp_algo plans with the ends of documents, or with the file of --attention-mask-grid");
  refuse(fields, {"tp-2d", "unaligned-linear"}, "this layout is not supported yet");
  refuse(fields, {"moe-pad-expert-input-to-capacity", "moe-zerc", "num-zero-experts"},
         "this part of mixtures of experts is not supported yet");
  refuse(fields, {"moe-extended-tp"}, "say --expert-tensor-parallel-size, and --expert-model-parallel-size 1");
  refuse(fields, {"balanced-moe-experts"},
         "experts are not copied to other ranks; --enable-expert-placement moves them");
  refuse(
      fields,
      {"moe-routing-trace-capture-logits", "moe-routing-trace-capture-hidden-states", "moe-routing-trace-dump-weights"},
      "leave it out: routing traces hold the chosen experts (--moe-routing-trace-path); --save-tensors has the rest");
  refuse(fields, {"moe-per-layer-logging"},
         "leave it out: metrics.jsonl always has the load and losses of each layer (--metrics-path)");
  refuse(fields, {"moe-router-padding-for-fp8", "moe-router-padding-for-quantization"},
         "fp8 is not supported, and needs no padding here; leave it out");
  refuse(fields,
         {"enable-mla-absorb", "enable-mla-scale-q-lora", "enable-mla-scale-kv-lora", "mla-up-proj-tp-overlap",
          "mla-swap-core-attn-out", "mla-zero-memory", "mtp-spec"},
         "this part of latent attention or of multi-token prediction is not supported yet");
  refuse(fields,
         {"enable-dsa-indexer", "index-n-heads", "index-head-dim", "index-topk", "index-topk-freq",
          "index-skip-topk-offset", "index-share-for-mtp-iteration", "indexer-loss-coeff",
          "use-fused-lightning-indexer", "use-fused-lightning-indexer-loss", "use-sparse-flash-attn",
          "no-use-sparse-c8-indexer", "apply-rope-no-in-complex"},
         "attention to tokens that an indexer chooses (DeepSeek-V3.2, GLM-5) is not supported yet");
  refuse(fields,
         {"enable-mhc", "hc-mult", "use-triton-mhc", "use-fused-mhc", "n-hash-layers", "swiglu-limit", "o-lora-rank",
          "o-groups", "kv-compress", "compress-ratios", "compress-rope-theta", "max-batch-size", "original-seq-len",
          "rope-factor", "sliding-window-size"},
         "this part of DeepSeek-V4 is not supported yet");
  refuse(fields,
         {"full-attention-interval", "linear-key-head-dim", "linear-num-key-heads", "linear-num-value-heads",
          "linear-value-head-dim", "mamba-d-conv", "mamba-expand", "mamba-chunk-size", "use-triton-gdn",
          "no-enable-linear-qkv"},
         "layers with linear attention (Qwen3-Next) are not supported yet");
  refuse(fields,
         {"init-norm-weight-in-fp32", "rmsnorm-weight-in-fp32", "add-output-layer-bias", "output-multiplier-scale"},
         "not supported yet: it changes the numbers");
  refuse(fields, {"lora-r", "lora-alpha", "lora-target-modules", "is-instruction-dataset", "stage", "qlora"},
         "fine-tuning of this kind is not supported yet");
  refuse(fields,
         {"add-bias-linear-fc", "fp32-residual-connection", "apply-residual-connection-post-layernorm",
          "clone-scatter-output-in-embedding"},
         "not supported yet: it changes the numbers");
  refuse(fields, {"long-mscale", "short-mscale"}, "longrope has one factor: --rope-scaling-attention-factor");
}

}  // namespace

void add_compatible_flags(core::ConfigFields& fields) {
  add_deprecated_spellings(fields);
  add_what_is_always_so(fields);
  add_flags_of_experts(fields);
  add_checkpoint_flags(fields);
  add_report_flags(fields);
  add_accelerator_flags(fields);
  add_what_is_not_built(fields);
}

}  // namespace ms::train
