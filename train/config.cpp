#include "train/config.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "train/compatibility.h"
#include "train/config_checks.h"
#include "train/features/check.h"
#include "train/features/registry.h"
#include "train/optim/update_rule.h"

namespace ms::train {
namespace {

constexpr int64_t kMaxSize = INT32_MAX;  // so that the product of two fits into 64 bits

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

// msckpt converts and reshards these models, but the trainer does not compute them yet.
void refuse_models_not_trained(const core::TransformerConfig& model, int tp) {
  const auto refuse = [](const char* flag, const char* what) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      core::cat(flag, ": ", what, " not trained yet; msckpt converts and reshards such models"));
  };
  if (!model.pre_norm) refuse("--no-pre-norm", "layers without norms before attention and MLP are");
  if (model.parallel_residual) refuse("--parallel-residual", "attention and MLP side by side are");
  if (model.qk_layernorm_all_heads && tp > 1)
    refuse("--qk-layernorm-all-heads with --tensor-model-parallel-size above 1",
           "norms over heads of several ranks are");
  if (model.residual_multiplier != 1) refuse("--residual-multiplier", "a factor of what the blocks add is");
  if (model.logits_scaling != 1) refuse("--logits-scaling", "a divisor of the logits is");
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
  const layout::ScheduleSettings schedule = schedule_settings(config.parallel);
  const int64_t group = schedule.microbatch_group_size > 0 ? schedule.microbatch_group_size : pp;
  const int64_t rest = num_microbatches % group;
  const std::string groups =
      group == pp ? core::cat("--pipeline-model-parallel-size ", pp)
                  : core::cat("--microbatch-group-size-per-virtual-pipeline-stage ", group,
                              ", of which the last may be smaller, but not below --pipeline-model-parallel-size ", pp);
  require(!is_interleaved(config) || rest == 0 || rest >= pp, "virtual stages take micro-batches in groups of ", groups,
          ", but a step has ", num_microbatches, ", which leaves ", rest, ": ", what, " / (--micro-batch-size ",
          micro_batch_size, " x data-parallel size ", dp, ")");
  const int64_t least = layout::least_microbatches(schedule.method, pp);
  require(num_microbatches >= least, "--schedules-method ", config.parallel.schedules_method, " needs ", least,
          " micro-batches, twice --pipeline-model-parallel-size ", pp, ", but a step has ", num_microbatches, ": ",
          what, " / (--micro-batch-size ", micro_batch_size, " x data-parallel size ", dp, ")");
}

void validate_sizes(const TrainingConfig& training, int dp) {
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
  fields.add("rng", rng);
  fields.add("generate", generate);
  fields.alias("tokenizer-name-or-path", "tokenizer_model");
  fields.alias("no-log-learnig-rate-to-tensorboard", "log_learning_rate_to_tensorboard",
               "false");  // Megatron's spelling
  for (const Feature& feature : features()) {
    fields.section(feature.name, describe(feature));
    feature.add_flags(fields, *this);
  }
  add_compatible_flags(fields);
  return fields;
}

void take_model_from(const core::TransformerConfig& found, const core::ConfigFields& given, TrainerConfig& config) {
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    if (!given.given(name)) config.model.*member = found.*member;
  });
  // The model's layers do not count the places of --noop-layers, --num-layers does.
  if (!given.given("num_layers")) config.model.num_layers += static_cast<int64_t>(config.parallel.noop_layers.size());
  if (!given.given("vocab_size") && config.data.tokenizer_type == "NullTokenizer") --config.model.vocab_size;
}

void take_checkpoint_args(const core::TransformerConfig& found, bool is_of_a_run, const core::ConfigFields& given,
                          TrainerConfig& config) {
  take_model_from(found, given, config);
  if (!is_of_a_run) return;
  using Model = core::TransformerConfig;
  for (const auto& [member, flag] : {std::pair{&Model::hidden_dropout, "--hidden-dropout"},
                                     std::pair{&Model::attention_dropout, "--attention-dropout"}}) {
    if (found.*member == config.model.*member) continue;
    core::log_warning("train.config",
                      core::cat("--use-checkpoint-args: ", flag, " ", found.*member, " of the checkpoint replaces ",
                                config.model.*member, ", as in Megatron"));
    config.model.*member = found.*member;
  }
}

layout::RankGrid TrainerConfig::grid(int world_size) const {
  const int replica_size =
      parallel.tensor_model_parallel_size * parallel.pipeline_model_parallel_size * parallel.context_parallel_size;
  return {.tp = parallel.tensor_model_parallel_size,
          .cp = parallel.context_parallel_size,
          .dp = world_size / replica_size,
          .pp = parallel.pipeline_model_parallel_size,
          .order = parallel.use_tp_pp_dp_mapping ? layout::kTpCpEpPpDp : layout::kTpCpEpDpPp,
          .cp_window = context_parts(parallel).window,
          .cp_ring = context_parts(parallel).ring,
          .dp_replica = parallel.num_distributed_optimizer_instances,
          .etp = expert_tensor_parallel_size(parallel),
          .ep = expert_model_parallel_size(parallel),
          .query_parts = layout::query_parts(model, parallel.tensor_model_parallel_size),
          .chooses_cp = chooses_degrees(parallel)};
}

layout::ModelLayout TrainerConfig::layout(int world_size) const {
  layout::SizeFlags flags;
  if (!parallel.pipeline_model_parallel_layout.empty()) flags.layers = "--pipeline-model-parallel-layout";
  return {.tensor_model_parallel_size = parallel.tensor_model_parallel_size,
          .pipeline_model_parallel_size = parallel.pipeline_model_parallel_size,
          .data_parallel_size = grid(world_size).replicas(),
          .zero_stage = zero_stage(parallel),
          .virtual_pipeline_model_parallel_size = virtual_pipeline_model_parallel_size(),
          .expert_model_parallel_size = model.has_experts() ? grid(world_size).ep : 1,
          .expert_tensor_parallel_size = model.has_experts() ? grid(world_size).etp : 1,
          .num_distributed_optimizer_instances = parallel.num_distributed_optimizer_instances,
          .num_layer_list = layer_list(*this),
          .layer_order = layout::chunk_order(train::schedule_settings(parallel).method),
          .order = grid(world_size).order,
          .context_parallel_size = parallel.context_parallel_size,
          .size_flags = flags,
          .state_over_instances = parallel.outer_dp_sharding_strategy == "optim",
          .least_divided_elems = least_divided_elems(parallel, params_dtype())};
}

layout::RecomputePlan TrainerConfig::recompute_plan() const {
  const TrainingConfig& t = training;
  const auto has_module = [&](const char* name) { return std::ranges::count(t.recompute_modules, name) > 0; };
  return layout::RecomputePlan(
      {.granularity = t.recompute_in_bubble ? "full" : t.recompute_granularity,
       .method = t.recompute_in_bubble ? "chunk" : t.recompute_method,
       .num_layers = t.recompute_num_layers,
       .norm_module = has_module("layernorm"),
       .mlp_module = has_module("mlp"),
       .moe_module = has_module("moe") || t.moe_layer_recompute,
       .moe_act_module = has_module("moe_act"),
       .shared_experts_module = has_module("shared_experts"),
       .latent_module = t.recompute_mla_up_proj || has_module("mla_up_proj"),
       .zero_memory_level = zero_memory_level(t),
       .zero_memory_num_layers = t.moe_zero_memory_num_layers.value_or(INT_MAX),
       .mlp_num_layers = t.swap_attention && t.recompute_granularity != "full" ? t.recompute_num_layers : 0,
       .norm = t.recompute_norm,
       .activation = t.recompute_activation_function,
       .norm_num_layers = t.recompute_norm_num_layers,
       .activation_num_layers = t.recompute_activation_function_num_layers,
       .chunks = t.enable_recompute_layers_per_pp_rank ? virtual_pipeline_model_parallel_size() : 1,
       .module_list = t.recompute_module_list,
       .module = static_cast<layout::RecomputedModule>(t.recompute_type)});
}

layout::ScheduleSettings TrainerConfig::schedule_settings() const {
  layout::ScheduleSettings settings = train::schedule_settings(parallel);
  settings.recompute = recompute_time(training);
  settings.pairs = interleaves_pairs(*this);
  settings.delays_weights_of_pairs = parallel.delay_wgrad_compute;
  if (training.enable_recompute_layers_per_pp_rank && training.recompute_num_layers < INT_MAX)
    settings.recomputed_chunks = static_cast<int>(training.recompute_num_layers);
  return settings;
}

layout::TrainingStep TrainerConfig::training_step(int world_size) const {
  const int64_t microbatches = num_microbatches(grid(world_size).dp);
  return {.model = model,
          .layout = layout(world_size),
          .sequence_parallel = parallel.sequence_parallel,
          .tensor_overlap = tensor_overlap(*this),
          .dtype = params_dtype(),
          .micro_batch_size = training.micro_batch_size,
          .seq_length = training.seq_length,
          .context_algorithm = context_algorithm(parallel),
          .context_parts = context_parts(parallel),
          .context_algorithms = context_algorithms_of_layers(parallel),
          .kv_cache = kv_cache(parallel),
          .max_seqlen_per_dp_cp_rank = chooses_degrees(parallel) ? parallel.max_seqlen_per_dp_cp_rank.value_or(0) : 0,
          .gathers_keys_of_heads = parallel.use_ulysses_allgather_kv,
          .mask = sample_mask(training),
          .rotary_positions = num_rotary_positions(*this),
          .threads = std::max(1, training.threads_per_rank),
          .num_microbatches = microbatches,
          .schedule = schedule_settings(),
          .posts_receives_early = parallel.overlap_p2p_communication,
          .deferred_output_gradients = deferred_output_gradients(parallel, microbatches),
          .loss_chunk_size = training.loss_chunk_size,
          .mtp_logits_are_brief = training.mtp_mem_efficient_logits,
          .recompute = recompute_plan(),
          .swap = swap_plan(*this),
          .reuse_fp32_param = optimizer.reuse_fp32_param,
          .optimizer_state = optimizer_state_roles(optimizer),
          .buckets = bucket_settings(parallel),
          .reduction_dtype = parallel.grad_reduce_in_bf16 ? core::DType::kBf16 : core::DType::kFp32,
          .overlaps_param_gather = parallel.overlap_param_gather,
          .frozen_parameters = frozen_parameters(optimizer, model),
          .counts_zeros = logger.log_num_zeros_in_grad,
          .logs_params_norm = logger.log_params_norm,
          .has_own_lengths = parallel.variable_seq_lengths,
          .gathers_tokens = gathers_tokens(parallel),
          .exchanges_hierarchically = exchanges_hierarchically(*this),
          .expert_groups = groups_of_experts(*this),
          .expert_overlap = expert_overlap(*this),
          .has_balance_losses = has_balance_losses(training),
          .has_global_balance_loss = balancing_coefficient(training, kGlobalAuxLoss) != 0,
          .gathers_logits = has_balancing(training, kSinkhorn),
          .gathers_choices = training.moe_expert_capacity_factor.has_value(),
          .adapts_recompute = training.moe_adaptive_recompute_activation,
          .expert_placement_freq = places_experts(*this) ? training.expert_placement_freq : 0};
}

int TrainerConfig::virtual_pipeline_model_parallel_size() const {
  if (layout::runs_in_a_v(train::schedule_settings(parallel).method)) return chunks_per_stage(*this).value_or(2);
  if (parallel.num_virtual_stages_per_pipeline_rank)
    return static_cast<int>(*parallel.num_virtual_stages_per_pipeline_rank);
  if (const std::optional<int> chunks = chunks_per_stage(*this)) return *chunks;
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
  for (const Feature& feature : features()) {
    if (feature.resolve != nullptr) feature.resolve(*this);
  }
  const int64_t replica_ranks = int64_t{parallel.tensor_model_parallel_size} * parallel.pipeline_model_parallel_size *
                                parallel.context_parallel_size;
  if (replica_ranks > 0 && world_size >= replica_ranks)
    resolve_instances(parallel, static_cast<int>(world_size / replica_ranks));
  if (training.seq_length == 0 &&
      !generate.generate.empty()) {  // no samples are cut: a text may be as long as the model's limit
    const int64_t parts = std::max<int64_t>(1, sequence_multiple(parallel));
    training.seq_length = model.max_position_embeddings / parts * parts;
  }
  if (training.global_batch_size == 0 && !training.step_batch_size_schedule.empty()) {
    try {
      training.global_batch_size = batch_size_steps(training).largest();
    } catch (const core::Error&) {  // resolve_and_validate says why
    }
  }
  if (training.global_batch_size == 0 && replica_ranks > 0 && world_size >= replica_ranks &&
      training.micro_batch_size > 0 && training.micro_batch_size <= kMaxSize) {
    const int64_t accumulated = training.gradient_accumulation_steps.value_or(1);
    const bool is_size = accumulated > 0 && accumulated <= kMaxSize;  // check_accumulation says why not
    training.global_batch_size = training.micro_batch_size * (world_size / replica_ranks) * (is_size ? accumulated : 1);
  }
  model.resolve(training.seq_length);
  resolve_schedule(training, scheduler, batch_sizes_if_valid(*this));
  if (data.split.empty() && !data.has_separate_paths()) data.split = DataConfig::kDefaultSplit;
}

void TrainerConfig::resolve_and_validate(int world_size) {
  refuse_models_not_trained(model, parallel.tensor_model_parallel_size);
  for (const Feature& feature : features()) {
    for (const Ineffective& flag : feature.ineffective) {
      if (flag.given(*this)) core::log_warning("train.config", flag.warning);
    }
  }
  if (checkpoint.save_interval > 0 && checkpoint.save.empty()) {
    core::log_warning("train.config", "--save-interval has no effect without --save: nothing is saved");
  }
  warn_of_other_optimizer(optimizer);
  warn_of_other_positions(model);
  resolve(world_size);
  validate_ranks(parallel, world_size);
  const int dp = grid(world_size).dp;
  validate_sizes(training, dp);
  model.validate();
  const int tp = parallel.tensor_model_parallel_size;
  require(model.padded_vocab_size(tp) <= kMaxSize, "--vocab-size ", model.vocab_size,
          ", padded to a multiple of --make-vocab-size-divisible-by ", model.make_vocab_size_divisible_by,
          " x --tensor-model-parallel-size ", tp, ", is above ", kMaxSize);
  for (const Feature& feature : features()) check_feature(feature, *this, world_size);
  layout::validate_layout(layout(world_size), model);
  require(training.eval_global_batch_size >= 0, "--eval-global-batch-size ", training.eval_global_batch_size,
          ": at least 1, or 0 for --global-batch-size");
  if (training.eval_global_batch_size > 0) {
    validate_batch_size(*this, dp, training.eval_global_batch_size,
                        core::cat("--eval-global-batch-size ", training.eval_global_batch_size));
  }
  validate_batch_size(*this, dp, training.global_batch_size,
                      core::cat("--global-batch-size ", training.global_batch_size));
  validate_positions(training, model);
  const bool trains = !training.skip_train && generate.generate.empty();
  validate_schedule(training, scheduler, optimizer, batch_sizes(), trains);
  // A run that continues has consumed some: the trainer checks it from there on.
  if (trains && checkpoint.load.empty()) validate_batch_sizes(world_size, 0);
  validate_steps(training);
  validate_saving(checkpoint);
  validate_optimizer(optimizer, model, trains);
  validate_logger(logger);
  validate_evaluation(training, eval_batch_size());
  require(rng.seed >= 0 && rng.seed <= UINT32_MAX, "--seed ", rng.seed, ": expected 0 to ", UINT32_MAX,
          ", as numpy's, which orders the data");
  require(generate.generate.empty() || generate.num_tokens_to_generate > 0, "--num-tokens-to-generate ",
          generate.num_tokens_to_generate, ": at least 1");
  require(generate.temperature >= 0, "--temperature ", generate.temperature, ": at least 0");
  for (const Feature& feature : features()) {
    if (feature.notices == nullptr) continue;
    for (const std::string& notice : feature.notices(*this)) core::log_warning("train.config", notice);
  }
}

}  // namespace ms::train
