// The configuration of a training run: one plain struct per concern, named as in Megatron (megatron/training/config).
//
// TransformerConfig is in core, DataConfig in train/data. A value is its default, overridden by the --config file,
// overridden by the flag (core/config.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/dtype.h"
#include "core/layout/model_layout.h"
#include "core/layout/rank_grid.h"
#include "core/layout/training_step.h"
#include "core/transformer_config.h"
#include "train/batch_size_schedule.h"
#include "train/data/data_config.h"
#include "train/features/async_log_allreduce.h"
#include "train/features/async_save.h"
#include "train/features/attention_mask_grid.h"
#include "train/features/attention_window.h"
#include "train/features/automated_pipeline.h"
#include "train/features/ckpt_compress.h"
#include "train/features/ckpt_fully_parallel_save.h"
#include "train/features/ckpt_gather.h"
#include "train/features/ckpt_writer.h"
#include "train/features/comm_progress.h"
#include "train/features/context_parallel.h"
#include "train/features/ddp_average.h"
#include "train/features/defer_embedding_wgrad.h"
#include "train/features/deterministic.h"
#include "train/features/distributed_optimizer.h"
#include "train/features/expert_parallel.h"
#include "train/features/expert_placement.h"
#include "train/features/flight_recorder.h"
#include "train/features/freeze_parameters.h"
#include "train/features/fused_operators.h"
#include "train/features/grad_reduce_in_bf16.h"
#include "train/features/gradient_accumulation_fusion.h"
#include "train/features/gradient_accumulation_steps.h"
#include "train/features/hybrid_context_parallel.h"
#include "train/features/incremental_save.h"
#include "train/features/layerzero.h"
#include "train/features/local_checkpoints.h"
#include "train/features/loss_chunks.h"
#include "train/features/megatron_fsdp.h"
#include "train/features/mixed_precision.h"
#include "train/features/mixture_of_experts.h"
#include "train/features/moe_fb_overlap.h"
#include "train/features/multi_latent_attention.h"
#include "train/features/multi_token_prediction.h"
#include "train/features/optimization_level.h"
#include "train/features/optimizer_instances.h"
#include "train/features/overlap_grad_reduce.h"
#include "train/features/overlap_param_gather.h"
#include "train/features/packed_documents.h"
#include "train/features/packed_weights.h"
#include "train/features/parallel_mode.h"
#include "train/features/parallel_optimizer.h"
#include "train/features/pipeline_parallel.h"
#include "train/features/pipeline_schedule.h"
#include "train/features/prefix_mask.h"
#include "train/features/profile.h"
#include "train/features/rank_order.h"
#include "train/features/recompute.h"
#include "train/features/recompute_activation_function.h"
#include "train/features/recompute_norm.h"
#include "train/features/recompute_pipelining.h"
#include "train/features/replication.h"
#include "train/features/reuse_fp32_param.h"
#include "train/features/routing_trace.h"
#include "train/features/save_tensors.h"
#include "train/features/sequence_parallel.h"
#include "train/features/shared_memory.h"
#include "train/features/spike_skip.h"
#include "train/features/stage_layers.h"
#include "train/features/straggler.h"
#include "train/features/swap_attention.h"
#include "train/features/swap_optimizer.h"
#include "train/features/tensor_parallel.h"
#include "train/features/tp_overlap.h"
#include "train/features/variable_seq_lengths.h"
#include "train/features/virtual_pipeline.h"
#include "train/features/weight_hash.h"

namespace ms::train {

struct ModelParallelConfig : TensorParallelConfig,
                             SequenceParallelConfig,
                             TpCommOverlapConfig,
                             AscendCocConfig,
                             AscendMc2Config,
                             ContextParallelConfig,
                             HybridContextParallelConfig,
                             VariableSeqLengthsConfig,
                             PipelineParallelConfig,
                             VirtualPipelineConfig,
                             PipelineScheduleConfig,
                             AutomatedPipelineConfig,
                             StageLayersConfig,
                             DeferEmbeddingWgradConfig,
                             DistributedOptimizerConfig,
                             OverlapGradReduceConfig,
                             OverlapParamGatherConfig,
                             GradReduceInBf16Config,
                             DdpAverageConfig,
                             AsyncLogAllreduceConfig,
                             MegatronFsdpConfig,
                             OptimizerInstancesConfig,
                             ParallelOptimizerConfig,
                             LayerZeroConfig,
                             SharedMemoryConfig,
                             CommProgressConfig,
                             RankOrderConfig,
                             ParallelModeConfig,
                             ExpertParallelConfig,
                             MoeFbOverlapConfig {
  double distributed_timeout_minutes = 10;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ModelParallelConfig;
    field("distributed_timeout_minutes", &C::distributed_timeout_minutes,
          "Minutes after which a silent rank counts as dead and the run ends; fractions allowed");
  }
};

struct OptimizerConfig : ReuseFp32ParamConfig, FreezeParametersConfig, SwapOptimizerConfig {
  std::string optimizer = "adam";
  double lr = 0;
  double min_lr = 0;
  std::optional<double> decoupled_lr;
  std::optional<double> decoupled_min_lr;
  double weight_decay = 0.01;
  bool apply_wd_to_qk_layernorm = false;
  std::optional<double> start_weight_decay;
  std::optional<double> end_weight_decay;
  std::string weight_decay_incr_style = "constant";
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double sgd_momentum = 0.9;
  double clip_grad = 1.0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = OptimizerConfig;
    field("optimizer", &C::optimizer,
          "adam: AdamW, with two moments of each parameter. sgd: stochastic gradient descent with --sgd-momentum, one "
          "moment, weight decay added to the gradient, as torch.optim.SGD");
    field("lr", &C::lr, "Peak learning rate");
    field("min_lr", &C::min_lr, "The schedules end here");
    field("decoupled_lr", &C::decoupled_lr,
          "Peak learning rate of word embeddings and output layer, on the same schedule. Default: --lr");
    field("decoupled_min_lr", &C::decoupled_min_lr, "With --decoupled-lr: where it ends. Default: --min-lr");
    field("weight_decay", &C::weight_decay, "Weight decay, decoupled with --optimizer adam; not of norms and biases");
    field("apply_wd_to_qk_layernorm", &C::apply_wd_to_qk_layernorm,
          "With --qk-layernorm: weight decay of the norms of query and key heads too, as Qwen3-Next was trained");
    field("start_weight_decay", &C::start_weight_decay, "Weight decay of the first step, if it increases");
    field("end_weight_decay", &C::end_weight_decay, "Weight decay of the last step, if it increases");
    field("weight_decay_incr_style", &C::weight_decay_incr_style, "constant, linear or cosine");
    field("adam_beta1", &C::adam_beta1, "Decay of the first moment");
    field("adam_beta2", &C::adam_beta2, "Decay of the second moment");
    field("adam_eps", &C::adam_eps, "Added to the root of the second moment");
    field("sgd_momentum", &C::sgd_momentum,
          "With --optimizer sgd: decay of the moment, from 0 (no momentum, and no memory for it) to below 1");
    field("clip_grad", &C::clip_grad, "Largest global gradient norm; 0: no clipping");
  }
};

struct SchedulerConfig {
  std::string lr_decay_style = "linear";
  std::string lr_wsd_decay_style = "exponential";
  int64_t lr_decay_iters = 0;
  int64_t lr_decay_samples = 0;
  int64_t lr_wsd_decay_iters = 0;
  int64_t lr_wsd_decay_samples = 0;
  int64_t lr_warmup_iters = 0;
  int64_t lr_warmup_samples = 0;
  double lr_warmup_fraction = 0;
  double lr_warmup_init = 0;
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = SchedulerConfig;
    field("lr_decay_style", &C::lr_decay_style,
          "Shape of the decay: constant, linear, cosine, inverse-square-root or WSD (constant, then "
          "--lr-wsd-decay-style)");
    field("lr_wsd_decay_style", &C::lr_wsd_decay_style,
          "Shape of WSD's last phase: exponential, linear, cosine or minus_sqrt");
    field("lr_decay_iters", &C::lr_decay_iters, "Iterations until the learning rate is --min-lr; 0: --train-iters");
    field("lr_decay_samples", &C::lr_decay_samples,
          "Samples until the learning rate is --min-lr, with --train-samples; 0: all of them");
    field("lr_wsd_decay_iters", &C::lr_wsd_decay_iters,
          "Iterations of WSD's last phase; required by --lr-decay-style WSD");
    field("lr_wsd_decay_samples", &C::lr_wsd_decay_samples, "Samples of WSD's last phase, with --train-samples");
    field("lr_warmup_iters", &C::lr_warmup_iters, "Iterations of linear warm-up");
    field("lr_warmup_samples", &C::lr_warmup_samples, "Samples of linear warm-up, with --train-samples");
    field("lr_warmup_fraction", &C::lr_warmup_fraction,
          "Length of the warm-up as a share of the decay, 0 to 1; excludes --lr-warmup-iters and "
          "--lr-warmup-samples");
    field("lr_warmup_init", &C::lr_warmup_init, "Learning rate at the start of the warm-up");
    field("override_opt_param_scheduler", &C::override_opt_param_scheduler,
          "On resume, use the schedule of the command line if the checkpoint's differs; without this or the next "
          "flag a difference is an error");
    field("use_checkpoint_opt_param_scheduler", &C::use_checkpoint_opt_param_scheduler,
          "On resume, use the schedule of the checkpoint if the command line's differs");
  }
};

struct TrainingConfig : MixedPrecisionConfig,
                        MixtureOfExpertsConfig,
                        GradientAccumulationStepsConfig,
                        MultiLatentAttentionConfig,
                        MultiTokenPredictionConfig,
                        RecomputeConfig,
                        RecomputeNormConfig,
                        RecomputeActivationFunctionConfig,
                        RecomputePipeliningConfig,
                        AttentionWindowConfig,
                        PackedDocumentsConfig,
                        PrefixMaskConfig,
                        AttentionMaskGridConfig,
                        SwapAttentionConfig,
                        LossChunksConfig,
                        DeterministicConfig,
                        PackedWeightsConfig,
                        GradientAccumulationFusionConfig,
                        FusedOperatorsConfig,
                        OptimizationLevelConfig,
                        SpikeSkipConfig,
                        WeightHashConfig,
                        ExpertPlacementConfig {
  int64_t micro_batch_size = 1;
  int64_t global_batch_size = 0;
  std::vector<int64_t> rampup_batch_size;
  std::vector<std::string> step_batch_size_schedule;  // entries; a word may hold several
  int64_t seq_length = 0;
  int64_t train_iters = 0;
  int64_t train_samples = 0;
  int64_t exit_interval = 0;
  double exit_duration_in_mins = 0;
  bool exit_signal_handler = false;
  std::string exit_signal = "SIGTERM";
  int64_t eval_interval = 1000;
  int64_t eval_iters = 100;
  int64_t eval_global_batch_size = 0;
  bool fixed_eval_samples = false;
  bool skip_train = false;
  bool check_for_nan_in_loss_and_grad = true;
  std::vector<int64_t> iterations_to_skip;
  bool calculate_per_token_loss = false;
  bool add_position_embedding = true;
  int threads_per_rank = 0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = TrainingConfig;
    field("micro_batch_size", &C::micro_batch_size, "Samples of one forward and backward on one replica");
    field("global_batch_size", &C::global_batch_size, "Samples of one step; 0: micro batch x data-parallel size");
    field("rampup_batch_size", &C::rampup_batch_size,
          "START INCREMENT SAMPLES: begin with steps of START samples, and grow by INCREMENT in equal parts of SAMPLES "
          "consumed samples up to --global-batch-size; needs --train-samples. Default: no ramp-up");
    field("step_batch_size_schedule", &C::step_batch_size_schedule,
          "0:16 2.4B:320 4.8B:624: samples of a step from so many consumed tokens on (K, M, B, T: 1e3 to 1e12), "
          "instead of --global-batch-size and --rampup-batch-size. Default: constant");
    field("seq_length", &C::seq_length, "Tokens per sample");
    field("train_iters", &C::train_iters, "Steps of the whole run, earlier parts included");
    field("train_samples", &C::train_samples, "Samples of the whole run, instead of --train-iters");
    field("exit_interval", &C::exit_interval, "Save and end at an iteration that is a multiple of this; 0: never");
    field("exit_duration_in_mins", &C::exit_duration_in_mins, "Save and end when the run has lasted so long; 0: never");
    field("exit_signal_handler", &C::exit_signal_handler, "Save before ending by --exit-signal");
    field("exit_signal", &C::exit_signal, "SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2");
    field("eval_interval", &C::eval_interval, "Steps between evaluations");
    field("eval_iters", &C::eval_iters, "Global batches per evaluation; 0: no evaluation");
    field("eval_global_batch_size", &C::eval_global_batch_size,
          "Samples of one global batch of an evaluation; 0: --global-batch-size");
    field("fixed_eval_samples", &C::fixed_eval_samples,
          "Read the same validation samples in every evaluation, so that losses are comparable; off: each reads "
          "the samples after the previous one's, as Megatron does");
    field("skip_train", &C::skip_train, "Evaluate on the validation and test sets, and exit");
    field("check_for_nan_in_loss_and_grad", &C::check_for_nan_in_loss_and_grad,
          "End the run when the loss or a gradient is not finite; otherwise such steps are skipped");
    field("iterations_to_skip", &C::iterations_to_skip,
          "Iterations (the first is 1) that are not computed, their samples consumed; for bad batches");
    field("calculate_per_token_loss", &C::calculate_per_token_loss,
          "Average the loss over all unmasked tokens of a step; off: over micro-batches");
    field("add_position_embedding", &C::add_position_embedding,
          "Positions as --position-embedding-type selects; --no-position-embedding excludes learned_absolute, as "
          "in Megatron's scripts");
    field("threads_per_rank", &C::threads_per_rank,
          "Compute threads of a rank; 0: the cores it may run on, divided by the ranks that share them");
  }
};

struct CheckpointConfig : AsyncSaveConfig,
                          CkptWriterConfig,
                          CkptGatherConfig,
                          CkptFullyParallelSaveConfig,
                          CkptCompressConfig,
                          IncrementalSaveConfig,
                          LocalCheckpointsConfig,
                          ReplicationConfig {
  std::string save;
  std::string load;
  int64_t save_interval = 0;
  int64_t ckpt_step = 0;
  int64_t save_retain_interval = 0;
  int64_t save_keep_last = 0;
  std::string ckpt_on_error = "stop";
  double ckpt_timeout = 10;
  bool finetune = false;
  bool load_optim = true;
  bool save_optim = true;
  bool use_checkpoint_args = false;
  bool exit_on_missing_checkpoint = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = CheckpointConfig;
    field("save", &C::save, "Folder in which this run saves checkpoints; empty: it saves none");
    field("load", &C::load,
          "Continue from the newest valid checkpoint in this folder: ours, a Hugging Face folder or a Megatron "
          "tree, of any layout; without one the run starts from scratch");
    field("save_interval", &C::save_interval, "Steps between saves; 0: only at the end");
    field("ckpt_step", &C::ckpt_step, "Iteration to load; 0: the newest");
    field("save_retain_interval", &C::save_retain_interval,
          "Keep the newest checkpoint and iterations that are multiples of this; 0: all");
    field("save_keep_last", &C::save_keep_last, "Keep this many of the newest checkpoints; 0: all");
    field("ckpt_on_error", &C::ckpt_on_error, "After a failed save: stop the run, or continue with a warning");
    field("ckpt_timeout", &C::ckpt_timeout,
          "Minutes without progress of a rank's writer after which a save has failed");
    field("finetune", &C::finetune, "Load only the weights, and start at iteration 0");
    field("load_optim", &C::load_optim, "Load the optimizer state; off: weights only, and the schedule restarts");
    field("save_optim", &C::save_optim, "Save the optimizer state; off: the run cannot be resumed from the checkpoint");
    field("use_checkpoint_args", &C::use_checkpoint_args,
          "Take the model's shape from the checkpoint of --load, where no flag gives it, and of a run's checkpoint its "
          "dropouts in any case, as Megatron");
    field("exit_on_missing_checkpoint", &C::exit_on_missing_checkpoint,
          "If --load contains no checkpoint, end with an error; off: start from scratch");
  }
};

struct LoggerConfig : SaveTensorsConfig, RoutingTraceConfig, FlightRecorderConfig, StragglerConfig {
  int64_t log_interval = 100;
  std::string log_level = "info";
  std::string log_rank = "0";
  std::string metrics_path;
  bool report_memory = false;
  double peak_tflops = 0;
  bool log_throughput = false;
  bool log_params_norm = false;
  bool log_num_zeros_in_grad = false;
  int64_t timing_log_level = 0;
  std::string tensorboard_dir;
  int64_t tensorboard_log_interval = 1;
  int64_t tensorboard_queue_size = 1000;
  bool log_learning_rate_to_tensorboard = true;
  bool log_loss_scale_to_tensorboard = true;
  bool log_batch_size_to_tensorboard = false;
  bool log_timers_to_tensorboard = false;
  bool log_validation_ppl_to_tensorboard = false;
  bool log_memory_to_tensorboard = false;
  bool log_world_size_to_tensorboard = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = LoggerConfig;
    field("log_interval", &C::log_interval, "Steps between log lines");
    field("log_level", &C::log_level, "Lowest level of log lines: debug, info, warning or error");
    field("log_rank", &C::log_rank, "Ranks that write to the log: 0, or all");
    field("metrics_path", &C::metrics_path, "File for one JSON line per step, under Megatron's names; empty: none");
    field("report_memory", &C::report_memory, "Add peak memory by purpose and the state of the arena to each log line");
    field("peak_tflops", &C::peak_tflops,
          "Roofline of one rank in TFLOP/s, for MFU and HFU; 0: measured at the start by a GEMM in the run's dtype");
    field("log_throughput", &C::log_throughput,
          "With --log-timers-to-tensorboard: TFLOP/s of a rank in the event files too");
    field("log_params_norm", &C::log_params_norm,
          "L2 norm of all parameters after each step in log, metrics and event files; costs a pass over the weights");
    field("log_num_zeros_in_grad", &C::log_num_zeros_in_grad,
          "Number of gradient elements that are 0 in log, metrics and event files; costs a pass over the gradients");
    field("timing_log_level", &C::timing_log_level,
          "Line with the times of a step's parts after each log line. 1: forward-backward, gradient reduction, "
          "update; 2: also forward and backward of micro-batches, and reading of batches; 0: none");
    field("tensorboard_dir", &C::tensorboard_dir, "Folder for TensorBoard event files; empty: none");
    field("tensorboard_log_interval", &C::tensorboard_log_interval, "Steps between entries in event files");
    field("tensorboard_queue_size", &C::tensorboard_queue_size, "Entries that may wait before they are written");
    field("log_learning_rate_to_tensorboard", &C::log_learning_rate_to_tensorboard, "Write the tag learning-rate");
    field("log_loss_scale_to_tensorboard", &C::log_loss_scale_to_tensorboard, "Write the tag loss-scale");
    field("log_batch_size_to_tensorboard", &C::log_batch_size_to_tensorboard, "Write the tag batch-size");
    field("log_timers_to_tensorboard", &C::log_timers_to_tensorboard, "Write the tag iteration-time (seconds)");
    field("log_validation_ppl_to_tensorboard", &C::log_validation_ppl_to_tensorboard,
          "Write the tag lm loss validation ppl");
    field("log_memory_to_tensorboard", &C::log_memory_to_tensorboard,
          "Write the tags mem-allocated-bytes and mem-max-allocated-bytes");
    field("log_world_size_to_tensorboard", &C::log_world_size_to_tensorboard, "Write the tag world-size");
  }
};

struct RngConfig {
  int64_t seed = 1234;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("seed", &RngConfig::seed, "Seed of initial weights, data order, dropout and generation, 0 to 2^32 - 1");
  }
};

struct GenerateConfig {
  std::string generate;
  int64_t num_tokens_to_generate = 200;
  double temperature = 0.8;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = GenerateConfig;
    field("generate", &C::generate, "Continue this text with the model of --load, print the result and exit");
    field("num_tokens_to_generate", &C::num_tokens_to_generate, "Tokens to add to the text of --generate");
    field("temperature", &C::temperature,
          "Temperature of the softmax from which --generate samples; 0: always the most likely token");
  }
};

struct TrainerConfig {
  ModelParallelConfig parallel;
  core::TransformerConfig model;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  TrainingConfig training;
  DataConfig data;
  CheckpointConfig checkpoint;
  LoggerConfig logger;
  ProfilingConfig profiling;
  RngConfig rng;
  GenerateConfig generate;

  // All flags, with Megatron's and MindSpeed's other spellings. `this` must outlive the result.
  core::ConfigFields fields();
  // Fills fields that follow from others (widths of the model, global batch, decay iterations), if those are given.
  // Idempotent. Never throws: resolve_and_validate reports errors.
  void resolve(int world_size);
  // Resolves, then checks every rule that needs no data. Throws kInvalidArgument or kUnsupported, naming the flags.
  void resolve_and_validate(int world_size);

  // Chunks of layers on each pipeline stage; 1: not interleaved. After resolve_and_validate.
  int virtual_pipeline_model_parallel_size() const;

  // Factor of the gradients in addition to their mean over the global batch: 1, or the number of replicas for
  // MindSpore's data_parallel without gradients_mean, which adds the replicas' means.
  double gradient_factor(int data_parallel_size) const {
    return parallel.parallel_mode == "data_parallel" && !parallel.gradients_mean ? data_parallel_size : 1;
  }

  layout::RankGrid grid(int world_size) const;
  layout::ModelLayout layout(int world_size) const;
  // A step of global_batch_size, as the formulas of core/layout read it. After resolve_and_validate.
  layout::TrainingStep training_step(int world_size) const;
  layout::RecomputePlan recompute_plan() const;
  layout::ScheduleSettings schedule_settings() const;
  core::DType params_dtype() const {
    return training.bf16 ? core::DType::kBf16 : training.fp16 ? core::DType::kFp16 : core::DType::kFp32;
  }
  // Of a step of global_batch_size; a growing batch begins with fewer.
  int64_t num_microbatches(int data_parallel_size) const {
    return training.global_batch_size / (training.micro_batch_size * data_parallel_size);
  }
  // The batch size of each step. Throws kInvalidArgument, naming the flags.
  BatchSizeSchedule batch_sizes() const;
  // Checks that the steps from `consumed_samples` on can be divided among the ranks: a growing batch may have begun on
  // fewer. Throws kInvalidArgument, naming the flags. After resolve_and_validate, which does so for runs without
  // --load.
  void validate_batch_sizes(int world_size, int64_t consumed_samples) const;
  // Training samples of the whole run.
  int64_t num_train_samples() const;

  // The number of validation samples that the whole run reads, and the first one of the evaluation at `iteration`. It
  // depends only on the iteration, so that a resumed run reads the same samples as an unbroken one. Source: Megatron's
  // get_train_valid_test_num_samples and consumed_valid_samples (megatron/training/training.py). After
  // resolve_and_validate.
  int64_t num_valid_samples() const;
  int64_t first_valid_sample(int64_t iteration) const;
  int64_t eval_batch_size() const {
    return training.eval_global_batch_size > 0 ? training.eval_global_batch_size : training.global_batch_size;
  }
};

// Takes the model's shape from a checkpoint or a config.json, except for fields that a flag or a --config file gave. A
// model's vocabulary includes a NullTokenizer's eod, but --vocab-size does not: vocab_size becomes the flag's value.
void take_model_from(const core::TransformerConfig& found, const core::ConfigFields& given, TrainerConfig& config);

// As --use-checkpoint-args does: take_model_from, and of a checkpoint of a run (not a published model) the dropouts
// also where a flag gives others, with a warning. Source: Megatron's load_args_from_checkpoint, which takes them by
// force (megatron/training/checkpointing.py).
void take_checkpoint_args(const core::TransformerConfig& found, bool is_of_a_run, const core::ConfigFields& given,
                          TrainerConfig& config);

}  // namespace ms::train
