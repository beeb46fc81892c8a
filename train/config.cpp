#include "train/config.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include "ckpt/writer.h"
#include "core/error.h"
#include "core/io/bulk_writer.h"
#include "core/log.h"
#include "core/scheduling.h"
#include "core/signals.h"
#include "train/compatibility.h"

namespace ms::train {
namespace {

constexpr int64_t kMaxSize = INT32_MAX;            // so that the product of two fits into 64 bits
constexpr int64_t kMaxSamples = int64_t{1} << 53;  // exact in JSON

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw core::Error(core::ErrorCode::kInvalidArgument, core::cat(parts...));
}

void validate_virtual_stages(const ModelParallelConfig& parallel, int64_t num_layers) {
  const auto& layers = parallel.num_layers_per_virtual_pipeline_stage;
  const auto& stages = parallel.num_virtual_stages_per_pipeline_rank;
  require(!layers || !stages,
          "--num-layers-per-virtual-pipeline-stage and --num-virtual-stages-per-pipeline-rank exclude each other");
  require(!layers || (*layers > 0 && *layers <= num_layers), "--num-layers-per-virtual-pipeline-stage ",
          layers.value_or(0), ": expected 1 to --num-layers ", num_layers);
  require(!stages || (*stages > 0 && *stages <= num_layers), "--num-virtual-stages-per-pipeline-rank ",
          stages.value_or(0), ": expected 1 to --num-layers ", num_layers);
}

bool one_of(const std::string& text, std::initializer_list<const char*> choices) {
  return std::any_of(choices.begin(), choices.end(), [&](const char* choice) { return text == choice; });
}

// batch_sizes: nullopt if the flags that say them are wrong.
void resolve_schedule(TrainingConfig& training, SchedulerConfig& scheduler,
                      const std::optional<BatchSizeSchedule>& batch_sizes) {
  if (training.train_samples > 0) {
    if (training.train_iters == 0 && batch_sizes)
      training.train_iters = batch_sizes->iterations(training.train_samples);
    if (scheduler.lr_decay_samples == 0) scheduler.lr_decay_samples = training.train_samples;
  } else if (scheduler.lr_decay_iters == 0) {
    scheduler.lr_decay_iters = training.train_iters;
  }
}

void validate_schedule(const TrainingConfig& training, const SchedulerConfig& scheduler,
                       const OptimizerConfig& optimizer, const BatchSizeSchedule& batch_sizes, bool trains) {
  require(training.train_samples >= 0, "--train-samples ", training.train_samples, ": give a positive number");
  const bool by_samples = training.train_samples > 0;
  const int64_t batch = training.global_batch_size;
  require(training.rampup_batch_size.empty() || by_samples || !trains,
          "--rampup-batch-size needs --train-samples instead of --train-iters: iterations of a growing batch are no "
          "measure of the schedule's length");
  for (const auto& [samples, flag] : {std::pair{training.train_samples, "--train-samples"},
                                      std::pair{scheduler.lr_decay_samples, "--lr-decay-samples"},
                                      std::pair{scheduler.lr_warmup_samples, "--lr-warmup-samples"},
                                      std::pair{scheduler.lr_wsd_decay_samples, "--lr-wsd-decay-samples"}}) {
    require(samples <= kMaxSamples, flag, " ", samples, ": at most ", kMaxSamples);
  }
  for (const auto& [iterations, flag] :
       {std::pair{training.train_iters, "--train-iters"}, std::pair{training.eval_iters, "--eval-iters"},
        std::pair{scheduler.lr_decay_iters, "--lr-decay-iters"},
        std::pair{scheduler.lr_warmup_iters, "--lr-warmup-iters"},
        std::pair{scheduler.lr_wsd_decay_iters, "--lr-wsd-decay-iters"}}) {
    require(iterations <= kMaxSamples / batch, flag, " ", iterations, " of --global-batch-size ", batch, ": at most ",
            kMaxSamples, " samples");
  }
  if (by_samples) {
    const int64_t iterations = batch_sizes.iterations(training.train_samples);
    require(training.train_iters == 0 || training.train_iters == iterations,
            "--train-iters and --train-samples exclude each other");
    require(scheduler.lr_decay_iters == 0 && scheduler.lr_warmup_iters == 0 && scheduler.lr_wsd_decay_iters == 0,
            "with --train-samples the schedule is in samples too: --lr-decay-samples, --lr-warmup-samples and "
            "--lr-wsd-decay-samples, not --lr-decay-iters, --lr-warmup-iters and --lr-wsd-decay-iters");
  } else {
    require(scheduler.lr_decay_samples == 0 && scheduler.lr_warmup_samples == 0 && scheduler.lr_wsd_decay_samples == 0,
            "--lr-decay-samples, --lr-warmup-samples and --lr-wsd-decay-samples need --train-samples");
  }
  require(!trains || training.train_iters > 0, "--train-iters is ", training.train_iters,
          ": give the number of steps (or --train-samples of at least a global batch, or --skip-train)");
  require(one_of(scheduler.lr_decay_style, {"constant", "linear", "cosine", "inverse-square-root", "WSD"}),
          "--lr-decay-style ", scheduler.lr_decay_style,
          ": expected constant, linear, cosine, inverse-square-root or WSD");
  require(one_of(scheduler.lr_wsd_decay_style, {"exponential", "linear", "cosine", "minus_sqrt"}),
          "--lr-wsd-decay-style ", scheduler.lr_wsd_decay_style,
          ": expected exponential, linear, cosine or minus_sqrt");
  const char* unit = by_samples ? "samples" : "iters";
  const int64_t decay = by_samples ? scheduler.lr_decay_samples : scheduler.lr_decay_iters;
  const int64_t warmup = by_samples ? scheduler.lr_warmup_samples : scheduler.lr_warmup_iters;
  const int64_t anneal = by_samples ? scheduler.lr_wsd_decay_samples : scheduler.lr_wsd_decay_iters;
  require(scheduler.lr_warmup_fraction == 0 || warmup == 0, "--lr-warmup-fraction and --lr-warmup-", unit,
          " exclude each other");
  require(scheduler.lr_warmup_fraction >= 0 && scheduler.lr_warmup_fraction < 1, "--lr-warmup-fraction ",
          scheduler.lr_warmup_fraction, ": expected a share in [0, 1)");
  require(warmup >= 0 && (!trains || warmup < decay), "--lr-warmup-", unit, " ", warmup, " must be below --lr-decay-",
          unit, " ", decay);
  require(scheduler.lr_decay_style != "WSD" || !trains || (anneal > 0 && anneal <= decay),
          "--lr-decay-style WSD needs --lr-wsd-decay-", unit, ", at most --lr-decay-", unit, " ", decay, "; it is ",
          anneal);
  require(!scheduler.override_opt_param_scheduler || !scheduler.use_checkpoint_opt_param_scheduler,
          "--override-opt_param-scheduler and --use-checkpoint-opt_param-scheduler exclude each other");

  const std::string& style = optimizer.weight_decay_incr_style;
  require(one_of(style, {"constant", "linear", "cosine"}), "--weight-decay-incr-style ", style,
          ": expected constant, linear or cosine");
  const auto& start = optimizer.start_weight_decay;
  const auto& end = optimizer.end_weight_decay;
  require(style != "constant" || (!start && !end),
          "--start-weight-decay and --end-weight-decay need --weight-decay-incr-style linear or cosine");
  require(style == "constant" || (start && end && *start >= 0 && *end >= *start), "--weight-decay-incr-style ", style,
          " needs --start-weight-decay, at least 0, and --end-weight-decay, at least that");
}

// Throws unless value is one of values; the error lists them.
void require_one_of(const char* flag, const std::string& value, std::initializer_list<const char*> values) {
  if (std::find(values.begin(), values.end(), value) != values.end()) return;
  std::string list;
  for (const char* one : values) list += core::cat(list.empty() ? "" : " or ", one);
  require(false, flag, " ", value, ": expected ", list);
}

constexpr int64_t kMaxSliceElements = int64_t{1} << 30;  // 4 GiB per message

void validate_saving(const CheckpointConfig& checkpoint) {
  require_one_of("--ckpt-writer", checkpoint.ckpt_writer, {"thread", "process"});
  require_one_of("--ckpt-overlap", checkpoint.ckpt_overlap, {"wait", "skip"});
  require_one_of("--ckpt-on-error", checkpoint.ckpt_on_error, {"stop", "continue"});
  ckpt::parse_gather_progress(checkpoint.ckpt_gather_progress);
  require(checkpoint.ckpt_slice_size > 0 && checkpoint.ckpt_slice_size <= kMaxSliceElements, "--ckpt-slice-size ",
          checkpoint.ckpt_slice_size, ": 1 to ", kMaxSliceElements, " elements");
  require(!checkpoint.ckpt_gather || checkpoint.ckpt_writer == "thread",
          "--ckpt-gather excludes --ckpt-writer process, which has no way to other ranks");
  core::parse_write_path(checkpoint.ckpt_write_path);
  core::parse_cpu_list(checkpoint.ckpt_writer_cpus);
  require(checkpoint.ckpt_staging_buffers == 1 || checkpoint.ckpt_staging_buffers == 2, "--ckpt-staging-buffers ",
          checkpoint.ckpt_staging_buffers, ": 1 or 2");
  require(checkpoint.async_save || (checkpoint.ckpt_writer == "thread" && !checkpoint.ckpt_lazy_snapshot),
          "--no-async-save takes no snapshot: it excludes --ckpt-writer process and --ckpt-lazy-snapshot");
  require(checkpoint.ckpt_compress_threads >= 1 && checkpoint.ckpt_compress_threads <= 256, "--ckpt-compress-threads ",
          checkpoint.ckpt_compress_threads, ": 1 to 256");
  require(checkpoint.ckpt_writer_nice >= 0 && checkpoint.ckpt_writer_nice <= 19, "--ckpt-writer-nice ",
          checkpoint.ckpt_writer_nice, ": 0 to 19");
  require(checkpoint.ckpt_io_limit >= 0, "--ckpt-io-limit ", checkpoint.ckpt_io_limit, ": MB/s, or 0 for no limit");
  require(checkpoint.ckpt_timeout > 0, "--ckpt-timeout ", checkpoint.ckpt_timeout, ": minutes, above 0");
  require(checkpoint.save_keep_last >= 0 && checkpoint.save_retain_interval >= 0,
          "--save-keep-last and --save-retain-interval: at least 0");
}

void validate_local_saving(const CheckpointConfig& checkpoint, int world_size) {
  const std::string& type = checkpoint.non_persistent_ckpt_type;
  require(type.empty() || type == "local", "--non-persistent-ckpt-type ", type,
          ": expected local; for frequent saves of which few stay, use --save-interval and --save-keep-last");
  const bool local = !type.empty();
  const int64_t interval = checkpoint.non_persistent_save_interval;
  require(interval >= 0, "--non-persistent-save-interval ", interval, ": at least 0");
  require(interval == 0 || local, "--non-persistent-save-interval needs --non-persistent-ckpt-type local");
  require(local == !checkpoint.non_persistent_local_ckpt_dir.empty(),
          "--non-persistent-ckpt-type local and --non-persistent-local-ckpt-dir go together");
  require(!local || checkpoint.save_optim,
          "--no-save-optim: a local checkpoint is there to go on from, and has the optimizer's state");
  require(!checkpoint.replication || local, "--replication needs --non-persistent-ckpt-type local");
  if (!checkpoint.replication) return;
  const int64_t jump = checkpoint.replication_jump, factor = checkpoint.replication_factor;
  require(jump >= 1, "--replication needs --replication-jump, at least 1: how far the next node's ranks are");
  require(factor >= 2, "--replication-factor ", factor, ": at least 2, the rank itself and one that has a replica");
  require(jump <= world_size && factor <= world_size && world_size % (jump * factor) == 0, "--replication-jump ", jump,
          " x --replication-factor ", factor, " must divide the ", world_size, " ranks");
}

// msckpt converts and reshards these models, but the trainer does not compute them yet.
void mark_models_not_trained(core::ConfigFields& fields) {
  for (const char* field : {"num_experts", "multi_latent_attention", "mtp_num_layers"}) {
    fields.remark(field, "not trained yet: refused");
  }
  for (const char* field :
       {"moe_layer_freq", "moe_ffn_hidden_size", "moe_router_topk", "moe_router_score_function",
        "moe_router_pre_softmax", "moe_router_enable_expert_bias", "moe_router_num_groups", "moe_router_group_topk",
        "moe_router_topk_scaling_factor", "moe_shared_expert_intermediate_size", "moe_shared_expert_gate"}) {
    fields.remark(field, "with --num-experts, not trained yet");
  }
  for (const char* field : {"q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"}) {
    fields.remark(field, "with --multi-latent-attention, not trained yet");
  }
}

void refuse_models_not_trained(const core::TransformerConfig& model) {
  const auto refuse = [](const char* flag, const char* what) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      core::cat(flag, ": ", what, " not trained yet; msckpt converts and reshards such models"));
  };
  if (model.has_experts()) refuse("--num-experts", "mixtures of experts are");
  if (model.multi_latent_attention) refuse("--multi-latent-attention", "latent attention is");
  if (model.mtp_num_layers != 0) refuse("--mtp-num-layers", "multi-token prediction is");
  if (!model.pre_norm) refuse("--no-pre-norm", "layers without norms before attention and MLP are");
  if (model.parallel_residual) refuse("--parallel-residual", "attention and MLP side by side are");
  if (model.qk_layernorm_all_heads) refuse("--qk-layernorm-all-heads", "norms over all heads of q and k are");
  if (model.rotary_base_local != 0) refuse("--rotary-base-local", "another rotary base in layers with a window is");
  if (model.residual_multiplier != 1) refuse("--residual-multiplier", "a factor of what the blocks add is");
  if (model.logits_scaling != 1) refuse("--logits-scaling", "a divisor of the logits is");
}

void validate_steps(const TrainingConfig& training) {
  require(!training.fp16 || !training.bf16, "--fp16 and --bf16 exclude each other");
  require(!training.loss_scale || training.fp16, "--loss-scale needs --fp16");
  require(!training.loss_scale || *training.loss_scale > 0, "--loss-scale ", training.loss_scale.value_or(0),
          ": give a positive number");
  require(training.min_loss_scale > 0 && training.min_loss_scale <= training.initial_loss_scale, "--min-loss-scale ",
          training.min_loss_scale, ": expected above 0 and at most --initial-loss-scale ", training.initial_loss_scale);
  require(training.loss_scale_window > 0, "--loss-scale-window ", training.loss_scale_window, ": at least 1");
  require(training.hysteresis > 0, "--hysteresis ", training.hysteresis, ": at least 1");
  require(training.spike_skip_factor == 0 || training.spike_skip_factor > 1, "--spike-skip-factor ",
          training.spike_skip_factor, ": expected a number above 1, or 0 for none");
  require(training.spike_skip_window > 0, "--spike-skip-window ", training.spike_skip_window, ": at least 1");
  for (const int64_t iteration : training.iterations_to_skip) {
    require(iteration > 0, "--iterations-to-skip ", iteration, ": the first iteration is 1");
  }
  require(training.exit_interval >= 0, "--exit-interval ", training.exit_interval, ": at least 0");
  require(training.exit_duration_in_mins >= 0, "--exit-duration-in-mins ", training.exit_duration_in_mins,
          ": at least 0");
  require(core::parse_signal(training.exit_signal) != 0, "--exit-signal ", training.exit_signal,
          ": expected SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2");
  require(training.exit_signal == "SIGTERM" || training.exit_signal_handler,
          "--exit-signal needs --exit-signal-handler");
}

void validate_parallel_mode(const ModelParallelConfig& parallel, int world_size) {
  const std::string& mode = parallel.parallel_mode;
  if (mode == "semi_auto_parallel" || mode == "auto_parallel" || mode == "hybrid_parallel") {
    throw core::Error(core::ErrorCode::kUnsupported,
                      core::cat("--parallel-mode ", mode,
                                " is not supported yet; say --tensor-model-parallel-size and "
                                "--pipeline-model-parallel-size, or data_parallel"));
  }
  require(!parallel.gradients_mean || mode == "data_parallel",
          "--gradients-mean needs --parallel-mode data_parallel; without it gradients are always averaged");
  require(mode.empty() || mode == "stand_alone" || mode == "data_parallel", "--parallel-mode ", mode,
          ": expected stand_alone or data_parallel");
  require(mode.empty() || (parallel.tensor_model_parallel_size == 1 && parallel.pipeline_model_parallel_size == 1),
          "--parallel-mode ", mode,
          " excludes --tensor-model-parallel-size and --pipeline-model-parallel-size above 1");
  require(mode != "stand_alone" || world_size == 1, "--parallel-mode stand_alone is for one rank, but there are ",
          world_size);
}

void validate_decoupled_lr(const OptimizerConfig& optimizer) {
  const auto& lr = optimizer.decoupled_lr;
  require(lr || !optimizer.decoupled_min_lr, "--decoupled-min-lr needs --decoupled-lr");
  if (!lr) return;
  require(*lr > 0, "--decoupled-lr ", *lr, ": give a positive number");
  const double min_lr = optimizer.decoupled_min_lr.value_or(optimizer.min_lr);
  require(min_lr >= 0 && min_lr <= *lr, optimizer.decoupled_min_lr ? "--decoupled-min-lr " : "--min-lr ", min_lr,
          " is negative or above --decoupled-lr ", *lr,
          optimizer.decoupled_min_lr ? "" : ": give --decoupled-min-lr, of which it is the default");
}

// what: the size and where it comes from, as errors begin.
void validate_micro_batches(const TrainingConfig& training, int dp, int64_t batch_size, const std::string& what) {
  require(batch_size % (training.micro_batch_size * dp) == 0, what, " is not a multiple of --micro-batch-size ",
          training.micro_batch_size, " x data-parallel size ", dp);
}

void validate_batch_size(const TrainerConfig& config, int dp, int64_t batch_size, const std::string& what) {
  const int64_t micro_batch_size = config.training.micro_batch_size;
  const int pp = config.parallel.pipeline_model_parallel_size;
  validate_micro_batches(config.training, dp, batch_size, what);
  const int64_t num_microbatches = batch_size / (micro_batch_size * dp);
  require(config.virtual_pipeline_model_parallel_size() == 1 || num_microbatches % pp == 0,
          "virtual stages take micro-batches in groups of --pipeline-model-parallel-size ", pp, ", but a step has ",
          num_microbatches, ": ", what, " / (--micro-batch-size ", micro_batch_size, " x data-parallel size ", dp, ")");
}

BatchSizeSchedule batch_size_steps(const TrainingConfig& training) {
  std::string text;
  for (const std::string& word : training.step_batch_size_schedule) text += core::cat(text.empty() ? "" : " ", word);
  return BatchSizeSchedule::by_steps(text, training.seq_length);
}

std::optional<BatchSizeSchedule> batch_sizes_if_valid(const TrainerConfig& config) {
  if (config.training.global_batch_size <= 0) return std::nullopt;
  try {
    return config.batch_sizes();
  } catch (const core::Error&) {
    return std::nullopt;  // resolve_and_validate says why
  }
}

}  // namespace

core::ConfigFields TrainerConfig::fields() {
  core::ConfigFields fields;
  fields.add("parallel", parallel);
  fields.add("model", model);
  fields.add("optimizer", optimizer);
  fields.add("scheduler", scheduler);
  fields.add("training", training);
  fields.add("data", data);
  fields.add("checkpoint", checkpoint);
  fields.add("logger", logger);
  fields.add("profiling", profiling);
  fields.add("rng", rng);
  fields.add("generate", generate);
  fields.alias("tokenizer-name-or-path", "tokenizer_model");
  fields.alias("no-log-learnig-rate-to-tensorboard", "log_learning_rate_to_tensorboard",
               "false");  // Megatron's spelling
  mark_models_not_trained(fields);
  add_compatible_flags(fields);
  return fields;
}

void take_model_from(const core::TransformerConfig& found, const core::ConfigFields& given, TrainerConfig& config) {
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    if (!given.given(name)) config.model.*member = found.*member;
  });
  if (!given.given("vocab_size") && config.data.tokenizer_type == "NullTokenizer") --config.model.vocab_size;
}

layout::RankGrid TrainerConfig::grid(int world_size) const {
  const int model_size = parallel.tensor_model_parallel_size * parallel.pipeline_model_parallel_size;
  return {.tp = parallel.tensor_model_parallel_size,
          .cp = 1,
          .dp = world_size / model_size,
          .pp = parallel.pipeline_model_parallel_size,
          .pp_before_dp = parallel.use_tp_pp_dp_mapping};
}

layout::ModelLayout TrainerConfig::layout(int world_size) const {
  return {.tensor_model_parallel_size = parallel.tensor_model_parallel_size,
          .pipeline_model_parallel_size = parallel.pipeline_model_parallel_size,
          .data_parallel_size = grid(world_size).dp,
          .zero_stage = parallel.use_distributed_optimizer ? 1 : 0,
          .virtual_pipeline_model_parallel_size = virtual_pipeline_model_parallel_size(),
          .pp_before_dp = parallel.use_tp_pp_dp_mapping};
}

layout::RecomputePlan TrainerConfig::recompute_plan() const {
  const TrainingConfig& t = training;
  const auto has_module = [&](const char* name) { return std::ranges::count(t.recompute_modules, name) > 0; };
  return layout::RecomputePlan({.granularity = t.recompute_granularity,
                                .method = t.recompute_method,
                                .num_layers = t.recompute_num_layers,
                                .norm_module = has_module("layernorm"),
                                .mlp_module = has_module("mlp"),
                                .norm = t.recompute_norm,
                                .activation = t.recompute_activation_function,
                                .norm_num_layers = t.recompute_norm_num_layers,
                                .activation_num_layers = t.recompute_activation_function_num_layers});
}

layout::TrainingStep TrainerConfig::training_step(int world_size) const {
  return {.model = model,
          .layout = layout(world_size),
          .sequence_parallel = parallel.sequence_parallel,
          .dtype = params_dtype(),
          .micro_batch_size = training.micro_batch_size,
          .seq_length = training.seq_length,
          .num_microbatches = num_microbatches(grid(world_size).dp),
          .posts_receives_early = parallel.overlap_p2p_communication,
          .loss_chunk_size = training.loss_chunk_size,
          .recompute = recompute_plan(),
          .reuse_fp32_param = optimizer.reuse_fp32_param,
          .counts_zeros = logger.log_num_zeros_in_grad,
          .logs_params_norm = logger.log_params_norm};
}

int TrainerConfig::virtual_pipeline_model_parallel_size() const {
  if (parallel.num_virtual_stages_per_pipeline_rank)
    return static_cast<int>(*parallel.num_virtual_stages_per_pipeline_rank);
  return layout::virtual_pipeline_size(model, parallel.pipeline_model_parallel_size,
                                       parallel.num_layers_per_virtual_pipeline_stage.value_or(0));
}

int64_t TrainerConfig::num_valid_samples() const {
  const bool once = training.skip_train || training.fixed_eval_samples;
  const int64_t evaluations = once ? 1 : training.train_iters / training.eval_interval + 1;
  return evaluations * training.eval_iters * eval_batch_size();
}

int64_t TrainerConfig::first_valid_sample(int64_t iteration) const {
  if (training.skip_train || training.fixed_eval_samples) return 0;
  return (iteration - 1) / training.eval_interval * training.eval_iters * eval_batch_size();
}

BatchSizeSchedule TrainerConfig::batch_sizes() const {
  if (!training.step_batch_size_schedule.empty()) {
    require(training.rampup_batch_size.empty(),
            "--step-batch-size-schedule and --rampup-batch-size exclude each other");
    BatchSizeSchedule schedule = batch_size_steps(training);
    require(training.global_batch_size == schedule.largest(), "--step-batch-size-schedule ends with a batch of ",
            schedule.largest(), ", but --global-batch-size is ", training.global_batch_size,
            ": leave --global-batch-size out");
    return schedule;
  }
  if (!training.rampup_batch_size.empty())
    return BatchSizeSchedule::ramp_up(training.rampup_batch_size, training.global_batch_size);
  return BatchSizeSchedule(training.global_batch_size);
}

void TrainerConfig::validate_batch_sizes(int world_size, int64_t consumed_samples) const {
  const int dp = grid(world_size).dp;
  const int64_t total = num_train_samples();
  batch_sizes().each_size(consumed_samples, [&](int64_t size, int64_t consumed, int64_t) {
    if (consumed >= total) return false;
    validate_batch_size(*this, dp, size, core::cat("the batch of ", size, " samples (from sample ", consumed, " on)"));
    return true;
  });
}

int64_t TrainerConfig::num_train_samples() const {
  // As Megatron, whose data set has --train-samples, also if the last of them make no whole batch: their number decides
  // how the documents are shuffled.
  return std::max(training.train_samples, batch_sizes().samples_of(training.train_iters));
}

void TrainerConfig::resolve(int world_size) {
  if (parallel.tensor_model_parallel_size == 1) parallel.sequence_parallel = false;  // as Megatron
  const int64_t model_ranks = int64_t{parallel.tensor_model_parallel_size} * parallel.pipeline_model_parallel_size;
  if (training.seq_length == 0 &&
      !generate.generate.empty()) {  // no samples are cut: a text may be as long as the model's limit
    const int parts = parallel.sequence_parallel ? std::max(1, parallel.tensor_model_parallel_size) : 1;
    training.seq_length = model.max_position_embeddings / parts * parts;
  }
  if (training.global_batch_size == 0 && !training.step_batch_size_schedule.empty()) {
    try {
      training.global_batch_size = batch_size_steps(training).largest();
    } catch (const core::Error&) {  // resolve_and_validate says why
    }
  }
  if (training.global_batch_size == 0 && model_ranks > 0 && world_size >= model_ranks &&
      training.micro_batch_size > 0 && training.micro_batch_size <= kMaxSize) {
    training.global_batch_size = training.micro_batch_size * (world_size / model_ranks);
  }
  model.resolve(training.seq_length);
  resolve_schedule(training, scheduler, batch_sizes_if_valid(*this));
  if (training.loss_compute_mode == "chunk" && training.loss_chunk_size == 0) training.loss_chunk_size = 1024;
  if (training.loss_chunk_size > 0) training.loss_compute_mode = "chunk";
  if (data.split.empty() && !data.has_separate_paths()) data.split = DataConfig::kDefaultSplit;
}

void TrainerConfig::resolve_and_validate(int world_size) {
  refuse_models_not_trained(model);
  if (parallel.sequence_parallel && parallel.tensor_model_parallel_size == 1) {
    core::log_warning("train.config",
                      "--sequence-parallel has no effect with --tensor-model-parallel-size 1: there is nobody to share "
                      "a sequence with");
  }
  if (checkpoint.save_interval > 0 && checkpoint.save.empty()) {
    core::log_warning("train.config", "--save-interval has no effect without --save: nothing is saved");
  }
  resolve(world_size);
  const int tp = parallel.tensor_model_parallel_size;
  const int pp = parallel.pipeline_model_parallel_size;
  require(tp >= 1, "--tensor-model-parallel-size ", tp, ": at least 1");
  require(pp >= 1, "--pipeline-model-parallel-size ", pp, ": at least 1");
  const int64_t model_ranks = int64_t{tp} * pp;
  require(world_size % model_ranks == 0, "world size ", world_size,
          " is not a multiple of --tensor-model-parallel-size ", tp, " x --pipeline-model-parallel-size ", pp,
          ". Start a multiple of ", model_ranks, " ranks (mpirun -n)");
  require(parallel.distributed_timeout_minutes > 0, "--distributed-timeout-minutes ",
          parallel.distributed_timeout_minutes, ": give a positive number");
  validate_parallel_mode(parallel, world_size);
  const int dp = grid(world_size).dp;

  require(training.seq_length > 0, "--seq-length is ", training.seq_length, ": give the tokens per sample");
  require(training.micro_batch_size > 0, "--micro-batch-size is ", training.micro_batch_size, ": at least 1");
  for (const auto& [size, flag] :
       {std::pair{training.seq_length, "--seq-length"}, std::pair{training.micro_batch_size, "--micro-batch-size"},
        std::pair{training.global_batch_size, "--global-batch-size"},
        std::pair{training.eval_global_batch_size, "--eval-global-batch-size"}}) {
    require(size <= kMaxSize, flag, " ", size, ": at most ", kMaxSize);
  }
  require(training.global_batch_size > 0, "--global-batch-size ", training.global_batch_size, ": at least 1");
  validate_micro_batches(training, dp, training.global_batch_size,
                         core::cat("--global-batch-size ", training.global_batch_size));
  require(!parallel.sequence_parallel || training.seq_length % tp == 0, "--sequence-parallel: --seq-length ",
          training.seq_length, " is not a multiple of --tensor-model-parallel-size ", tp);

  model.validate();
  require(model.padded_vocab_size(tp) <= kMaxSize, "--vocab-size ", model.vocab_size,
          ", padded to a multiple of --make-vocab-size-divisible-by ", model.make_vocab_size_divisible_by,
          " x --tensor-model-parallel-size ", tp, ", is above ", kMaxSize);
  validate_virtual_stages(parallel, model.num_layers);
  layout::validate_layout(layout(world_size), model);
  layout::refuse_parts_of_query_groups(layout(world_size), model);
  require(training.eval_global_batch_size >= 0, "--eval-global-batch-size ", training.eval_global_batch_size,
          ": at least 1, or 0 for --global-batch-size");
  if (training.eval_global_batch_size > 0) {
    validate_batch_size(*this, dp, training.eval_global_batch_size,
                        core::cat("--eval-global-batch-size ", training.eval_global_batch_size));
  }
  validate_batch_size(*this, dp, training.global_batch_size,
                      core::cat("--global-batch-size ", training.global_batch_size));
  // Dynamic RoPE scaling is meant for sequences beyond the model's own limit.
  require(training.add_position_embedding || model.position_embedding_type != "learned_absolute",
          "--no-position-embedding contradicts --position-embedding-type learned_absolute; say rope or none");
  require(model.max_position_embeddings >= training.seq_length || model.rope_scaling_type == "dynamic",
          "--max-position-embeddings ", model.max_position_embeddings, " is below --seq-length ", training.seq_length);

  const bool trains = !training.skip_train && generate.generate.empty();
  validate_schedule(training, scheduler, optimizer, batch_sizes(), trains);
  // A run that continues has consumed some: the trainer checks it from there on.
  if (trains && checkpoint.load.empty()) validate_batch_sizes(world_size, 0);
  validate_steps(training);
  validate_saving(checkpoint);
  validate_local_saving(checkpoint, world_size);
  require(!trains || optimizer.lr > 0, "--lr is ", optimizer.lr, ": give the peak learning rate");
  require(optimizer.min_lr <= optimizer.lr || !trains, "--min-lr ", optimizer.min_lr, " is above --lr ", optimizer.lr);
  validate_decoupled_lr(optimizer);
  require(!optimizer.apply_wd_to_qk_layernorm || model.qk_layernorm,
          "--apply-wd-to-qk-layernorm needs --qk-layernorm; without it there are no such norms");
  require(optimizer.clip_grad >= 0, "--clip-grad ", optimizer.clip_grad, ": at least 0");
  require(
      optimizer.adam_beta1 >= 0 && optimizer.adam_beta1 < 1 && optimizer.adam_beta2 >= 0 && optimizer.adam_beta2 < 1,
      "--adam-beta1 and --adam-beta2 must be in [0, 1)");

  require(!optimizer.reuse_fp32_param || training.bf16, "--reuse-fp32-param needs --bf16");
  require(
      !optimizer.reuse_fp32_param || !checkpoint.ckpt_lazy_snapshot,
      "--reuse-fp32-param does not go with --ckpt-lazy-snapshot: the master weights are put together for a snapshot "
      "in the memory of the gradients");

  const std::string& granularity = training.recompute_granularity;
  require_one_of("--recompute-granularity", granularity, {"", "full", "selective"});
  const bool full = granularity == "full";
  require(full != training.recompute_method.empty(),
          "--recompute-granularity full and --recompute-method (uniform or block) go together");
  require(!full || ((training.recompute_method == "uniform" || training.recompute_method == "block") &&
                    training.recompute_num_layers > 0),
          "--recompute-method ", training.recompute_method,
          ": expected uniform or block, with --recompute-num-layers above 0");
  require(full || training.recompute_num_layers == 0, "--recompute-num-layers needs --recompute-granularity full");
  for (const std::string& module : training.recompute_modules) {
    require_one_of("--recompute-modules", module, {"core_attn", "layernorm", "mlp"});
  }
  require(training.recompute_modules.empty() || granularity == "selective",
          "--recompute-modules needs --recompute-granularity selective");
  const bool uniform = training.recompute_method == "uniform";
  require(!uniform || !training.recompute_activation_function,
          "--recompute-activation-function does not go with --recompute-method uniform, which drops all; use block");
  require(!uniform || !training.recompute_norm,
          "--recompute-norm does not go with --recompute-method uniform, which drops all; use block");
  require(training.recompute_activation_function ? training.recompute_activation_function_num_layers >= 0
                                                 : training.recompute_activation_function_num_layers == 0,
          "--recompute-activation-function-num-layers needs --recompute-activation-function, and is not negative");
  require(training.recompute_norm ? training.recompute_norm_num_layers >= 0 : training.recompute_norm_num_layers == 0,
          "--recompute-norm-num-layers needs --recompute-norm, and is not negative");

  require_one_of("--loss-compute-mode", training.loss_compute_mode, {"default", "chunk"});
  require(training.loss_chunk_size >= 0, "--loss-chunk-size ", training.loss_chunk_size, ": at least 1 position");

  require(checkpoint.save_interval >= 0, "--save-interval ", checkpoint.save_interval, ": at least 0");
  require(checkpoint.ckpt_step == 0 || !checkpoint.load.empty(), "--ckpt-step needs --load");
  require(!checkpoint.use_checkpoint_args || !checkpoint.load.empty(), "--use-checkpoint-args needs --load");
  require(logger.log_interval > 0, "--log-interval ", logger.log_interval, ": at least 1");
  require(logger.timing_log_level >= 0 && logger.timing_log_level <= 2, "--timing-log-level ", logger.timing_log_level,
          ": expected 0, 1 or 2");
  require(logger.log_rank == "0" || logger.log_rank == "all", "--log-rank ", logger.log_rank, ": expected 0 or all");
  require(logger.tensorboard_log_interval > 0, "--tensorboard-log-interval ", logger.tensorboard_log_interval,
          ": at least 1");
  require(logger.tensorboard_queue_size > 0, "--tensorboard-queue-size ", logger.tensorboard_queue_size,
          ": at least 1");
  require(training.eval_iters >= 0 && training.eval_interval > 0,
          "--eval-interval must be positive, --eval-iters at least 0");
  require(training.eval_iters <= kMaxSamples / eval_batch_size(), "--eval-iters ", training.eval_iters,
          " of --eval-global-batch-size ", eval_batch_size(), ": at most ", kMaxSamples, " samples");
  const int64_t most_evaluations = training.eval_iters > 0 ? kMaxSamples / eval_batch_size() / training.eval_iters
                                                           : std::numeric_limits<int64_t>::max();
  require(training.fixed_eval_samples ||
                  training.train_iters /
                      training.eval_interval<most_evaluations, "--train-iters ", training.train_iters,
                                             " / --eval-interval ", training.eval_interval, " x --eval-iters ",
                                             training.eval_iters, " x ", training.eval_global_batch_size> 0
              ? "--eval-global-batch-size "
              : "--global-batch-size ",
          eval_batch_size(), ": at most ", kMaxSamples, " validation samples");

  const ProfilingConfig& p = profiling;
  require(!p.profile_with_memory || p.profile_with_cpu, "--profile-with-memory needs --profile-with-cpu");
  require(!p.profile || p.profile_step_start < p.profile_step_end, "--profile-step-start ", p.profile_step_start,
          " must be below --profile-step-end ", p.profile_step_end);
  require(p.profile_level == "level0" || p.profile_level == "level1" || p.profile_level == "level2", "--profile-level ",
          p.profile_level, ": expected level0, level1 or level2");
  require(p.profile_format == "native" || p.profile_format == "json" || p.profile_format == "json.gz" ||
              p.profile_format == "json.zst",
          "--profile-format ", p.profile_format, ": expected native, json, json.gz or json.zst");
  for (int64_t rank : p.profile_ranks) {
    require(!p.profile || (rank >= -1 && rank < world_size), "--profile-ranks ", rank, ": ranks are 0 to ",
            world_size - 1, ", or -1 for all");
  }
  require(rng.seed >= 0 && rng.seed <= UINT32_MAX, "--seed ", rng.seed, ": expected 0 to ", UINT32_MAX,
          ", as numpy's, which orders the data");
  require(generate.generate.empty() || generate.num_tokens_to_generate > 0, "--num-tokens-to-generate ",
          generate.num_tokens_to_generate, ": at least 1");
  require(generate.temperature >= 0, "--temperature ", generate.temperature, ": at least 0");
}

}  // namespace ms::train
