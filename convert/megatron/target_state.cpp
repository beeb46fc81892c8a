#include "convert/megatron/target_state.h"

#include <algorithm>
#include <filesystem>

#include "convert/megatron/iterations.h"
#include "convert/megatron/optimizer_order.h"
#include "convert/megatron/param_groups.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

constexpr const char* kEmbedding = "embedding.word_embeddings.weight";

// "3,4,4".
std::string listed(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += cat(text.empty() ? "" : ",", number);
  return text;
}

class StatePlanner {
 public:
  StatePlanner(const ckpt::Source& source, const MegatronTargetOptions& options, const MegatronModel& model,
               const WeightDType& dtype, std::vector<std::string>& decisions)
      : source_(source), options_(options), model_(model), dtype_(dtype), decisions_(decisions) {}

  MegatronTargetState plan() {
    state_.iteration = source_.info().iteration;
    state_.args_form = options_.args;
    state_.naming = options_.naming;
    state_.scheduler = megatron_scheduler(source_.info());
    if (options_.with_optimizer) plan_optimizer();
    add_args();
    describe();
    return std::move(state_);
  }

 private:
  void plan_optimizer();
  void plan_groups();
  void plan_schedule();
  void add_args();
  void add_pipeline_extras();
  void describe();
  void say(const auto&... parts) { decisions_.push_back(cat(parts...)); }

  const ckpt::Source& source_;
  const MegatronTargetOptions& options_;
  const MegatronModel& model_;
  const WeightDType& dtype_;
  std::vector<std::string>& decisions_;
  MegatronTargetState state_;
};

void StatePlanner::plan_optimizer() {
  state_.optimizer =
      options_.use_distributed_optimizer ? MegatronOptimizerForm::kDistributed : MegatronOptimizerForm::kByPosition;
  const nlohmann::json& common = source_.info().common;
  state_.step = common.is_object() ? common.value("step", state_.iteration) : state_.iteration;
  plan_groups();
  plan_schedule();
  for (const layout::ParameterSpec& spec : model_.specs) {
    if (spec.is_buffer) continue;
    for (const OptimizerKind& moment : kMoments) {
      if (source_.shards().find(spec.key, moment.role)) continue;
      throw Error(ErrorCode::kUnsupported,
                  cat("the optimizer state has no ", moment.key, " of ", spec.key,
                      ", and Megatron needs Adam's state of all parameters; give --drop-optimizer to leave it out"));
    }
  }
}

void StatePlanner::plan_groups() {
  const std::vector<ckpt::OptimizerGroup> groups = ckpt::optimizer_groups(source_);
  const auto is_whole = [](const ckpt::OptimizerGroup& group) { return group.beta1 && group.beta2 && group.eps; };
  if (groups.empty() || !std::all_of(groups.begin(), groups.end(), is_whole)) {
    throw Error(ErrorCode::kUnsupported,
                "the source lacks Adam's betas and epsilon, which Megatron reads from the checkpoint; give "
                "--adam-beta1, --adam-beta2 and --adam-eps, or --drop-optimizer to leave out optimizer state");
  }
  MegatronGroups made = megatron_groups(groups, model_.specs);
  for (std::string& sentence : made.dropped) decisions_.push_back(std::move(sentence));
  state_.decayed = std::move(made.decayed);
  state_.other = std::move(made.other);
}

// In Megatron a group's max_lr and min_lr take precedence over the schedule's. They are written only if the source has
// them, so that a run that overrides the schedule uses its own.
void StatePlanner::plan_schedule() {
  if (!state_.scheduler.is_null()) return;
  const nlohmann::json& common = source_.info().common;
  const std::optional<double> lr = state_.decayed.lr;
  const bool moved = state_.decayed.initial_lr || (common.is_object() && common.contains("lr_scheduler"));
  if (!lr || moved) {
    throw Error(
        ErrorCode::kUnsupported,
        cat(lr ? cat("a scheduler that Megatron lacks has changed the learning rate, to ", *lr, " so far")
               : std::string("the source lacks the learning rate"),
            ", and Megatron loads an optimizer only with a schedule; give --lr, and --min-lr, --lr-decay-style, "
            "--lr-decay-iters, --lr-warmup-iters and --global-batch-size if it is not constant, or "
            "--drop-optimizer to leave out optimizer state"));
  }
  const nlohmann::json consumed =
      common.is_object() ? common.value("consumed_train_samples", nlohmann::json()) : nlohmann::json();
  const int64_t samples = consumed.is_number_integer() ? consumed.get<int64_t>() : 0;
  nlohmann::json& scheduler = state_.scheduler = nlohmann::json::object();
  for (const char* bound : {"max_lr", "min_lr"}) scheduler[bound] = *lr;
  scheduler["lr_warmup_steps"] = 0;
  scheduler["lr_decay_steps"] = std::max<int64_t>(1, samples);
  scheduler["lr_decay_style"] = "constant";
  scheduler["num_steps"] = samples;
  if (const auto decay = state_.decayed.weight_decay) {
    for (const char* bound : {"start_wd", "end_wd"}) scheduler[bound] = *decay;
    scheduler["wd_incr_steps"] = std::max<int64_t>(1, samples);
    scheduler["wd_incr_style"] = "constant";
  }
  if (state_.other.lr && state_.other.lr != lr) state_.other.max_lr = state_.other.min_lr = state_.other.lr;
  say("no scheduler has changed the source's learning rate, so opt_param_scheduler keeps it constant at ", *lr,
      "; Megatron uses it with --use-checkpoint-opt-param-scheduler, and its own flags with "
      "--override-opt-param-scheduler");
}

void StatePlanner::add_args() {
  const layout::ModelLayout& layout = model_.layout;
  const int tp = layout.tensor_model_parallel_size, pp = layout.pipeline_model_parallel_size;
  const int vpp = layout.virtual_pipeline_model_parallel_size;
  const DType weights = dtype_(kEmbedding);
  MegatronArgList& args = state_.args;
  args = megatron_args(model_.padded);
  for (auto& argument : megatron_progress_args(source_.info())) args.push_back(std::move(argument));
  // megatron/training/tokenizer: the null tokenizer adds an end-of-document token.
  const bool null_tokenizer = std::any_of(args.begin(), args.end(), [](const auto& argument) {
    return argument.first == "tokenizer_type" && argument.second == MegatronArg("NullTokenizer");
  });
  for (auto& [name, value] : args) {
    if (null_tokenizer && name == "vocab_size") value = model_.config.vocab_size - 1;
  }
  const MegatronArg none;
  const bool experts = model_.config.has_experts();
  const MegatronArgList of_tree = {
      {"padded_vocab_size", model_.padded.padded_vocab_size(tp)},
      {"tensor_model_parallel_size", int64_t{tp}},
      {"pipeline_model_parallel_size", int64_t{pp}},
      {"virtual_pipeline_model_parallel_size", vpp > 1 ? MegatronArg(int64_t{vpp}) : none},
      {"num_layers_per_virtual_pipeline_stage",
       vpp > 1 ? MegatronArg(model_.layers.num_slots() / (int64_t{pp} * vpp)) : none},
      {"expert_model_parallel_size", int64_t{model_.experts.ep}},
      {"expert_tensor_parallel_size", experts ? MegatronArg(int64_t{model_.experts.cuts()}) : none},
      {"moe_grouped_gemm", options_.moe_grouped_gemm},
      {"moe_use_legacy_grouped_gemm", options_.moe_grouped_gemm && options_.naming == MegatronNaming::kLocal},
      {"moe_tp_extend_ep", options_.moe_tp_extend_ep},
      {"context_parallel_size", int64_t{1}},
      {"data_parallel_size", int64_t{layout.data_parallel_size}},
      {"world_size", int64_t{layout.world_size()}},
      {"bf16", weights == DType::kBf16},
      {"fp16", weights == DType::kFp16},
      {"params_dtype", from_core_dtype(weights)},
      {"num_key_value_heads", model_.config.query_groups()},  // MindSpeed-LLM's converter to Hugging Face relies on it
                                                              // alone
      {"transformer_impl", options_.naming == MegatronNaming::kLocal ? "local" : "transformer_engine"},
      {"optimizer", "adam"},
      {"use_distributed_optimizer", state_.optimizer == MegatronOptimizerForm::kDistributed},
      {"overlap_grad_reduce", false},
      {"ddp_bucket_size", none},
      {"no_save_rng", true},
      {"no_save_optim", state_.optimizer == MegatronOptimizerForm::kNone},
  };
  args.insert(args.end(), of_tree.begin(), of_tree.end());
  add_pipeline_extras();
}

// As in MindSpeed-LLM: no-op layers count as layers, and have no experts.
void StatePlanner::add_pipeline_extras() {
  const PipelineExtras& extras = model_.layers.extras();
  if (extras.dualpipev) state_.args.emplace_back("schedules_method", "dualpipev");
  const auto& each = model_.layout.num_layer_list;
  if (!each.empty()) state_.args.emplace_back("num_layer_list", listed(each));
  const auto& noops = extras.noop_layers;
  if (noops.empty()) return;
  state_.args.emplace_back("noop_layers", listed(noops));
  for (auto& [name, value] : state_.args) {
    if (name == "num_layers") value = model_.layers.num_slots();
    auto* with_experts = name == "moe_layer_freq" ? std::get_if<std::vector<int64_t>>(&value) : nullptr;
    if (with_experts == nullptr) continue;
    for (const int64_t layer : noops) with_experts->insert(with_experts->begin() + layer, 0);
  }
}

void StatePlanner::describe() {
  const int tp = model_.layout.tensor_model_parallel_size;
  const int64_t vocab = model_.config.vocab_size, padded = model_.padded.padded_vocab_size(tp);
  if (padded > vocab) {
    say("the vocabulary of ", vocab, " rows is padded with ", padded - vocab, " rows of zeros to ", padded,
        ", a multiple of --make-vocab-size-divisible-by ", model_.padded.make_vocab_size_divisible_by, " x TP ", tp);
  }
  if (model_.config.post_norm)
    say("norms after attention and MLP have MindSpeed-LLM's names; megatron-core has no such norms");
  if (const std::string what = megatron_cannot_express(model_.config); !what.empty()) {
    say("Megatron itself cannot compute this model: args contain ", what,
        ", which only a program with such layers reads");
  }
  if (!megatron_supports_rope_scaling(model_.config)) {
    say("rope_scaling_type ", model_.config.rope_scaling_type,
        " with these settings is stored in args in MindSpeed-LLM's form; Megatron does not support this scaling");
  }
  if (state_.iteration == 0) {
    say("the source has no iteration, so the folder is ", kMegatronRelease, ", from which Megatron loads weights only");
  } else {
    say("random generator states are not copied: load the result with --no-load-rng");
  }
  if (state_.args_form == MegatronArgsForm::kOmit) {
    say("args are left out: the result does not describe the model, and msckpt cannot read it");
  }
}

}  // namespace

MegatronModel megatron_target_model(const ckpt::Source& source, const MegatronTargetOptions& options) {
  MegatronModel model;
  model.config = source.info().model;
  if (const std::string what = megatron_cannot_express(model.config); !what.empty() && !options.allow_custom_model) {
    throw Error(
        ErrorCode::kUnsupported,
        cat("Megatron has no arguments for parts of this model (", what,
            ") and would compute a different one; --allow-custom-model writes it anyway, with these as additional "
            "members of args, for a program with its own layers"));
  }
  model.padded = model.config;
  if (options.make_vocab_size_divisible_by > 0) {
    model.padded.make_vocab_size_divisible_by = options.make_vocab_size_divisible_by;
  }
  model.layout = options.layout;
  layout::ModelLayout matrices = model.layout;
  if (options.extras.any()) {  // only the map knows how layers are distributed
    matrices.pipeline_model_parallel_size = matrices.virtual_pipeline_model_parallel_size = 1;
    matrices.num_layer_list.clear();
  }
  layout::validate_layout(matrices, model.config);
  model.layers = MegatronLayerMap(model.config.num_layers, model.layout, options.extras);
  const int tp = model.layout.tensor_model_parallel_size, ep = model.layout.expert_model_parallel_size;
  const int etp = model.config.has_experts() ? model.layout.expert_tensor_parallel_size : tp;
  model.experts = {tp, options.moe_tp_extend_ep ? ep / tp : ep, etp, options.moe_tp_extend_ep};
  model.specs = layout::parameter_specs(model.config);
  for (layout::ParameterSpec& spec : model.specs) {
    if (options.naming != MegatronNaming::kLocal || !is_latent_down_projection(spec.key)) continue;
    if (spec.global_shape[0] % tp != 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("megatron-core's own layers cut ", spec.key, " by its ", spec.global_shape[0],
                      " rows, which --target-tensor-parallel-size ", tp,
                      " does not divide; Transformer Engine's, --target-norm-naming te, do not cut it"));
    }
    spec.rule = layout::TpRule::kRows;
  }
  return model;
}

MegatronTargetState plan_target_state(const ckpt::Source& source, const MegatronTargetOptions& options,
                                      const MegatronModel& model, const WeightDType& dtype,
                                      std::vector<std::string>& decisions) {
  return StatePlanner(source, options, model, dtype, decisions).plan();
}

TensorRole filled_from(const ckpt::Source& source, bool with_optimizer, const std::string& key, TensorRole role,
                       DType dtype) {
  const bool has_master = with_optimizer && source.shards().find(key, TensorRole::kMaster).has_value();
  if (role == TensorRole::kMaster && !has_master) return TensorRole::kParam;
  if (role == TensorRole::kParam && dtype == DType::kFp32 && has_master) return TensorRole::kMaster;
  return role;
}

// Megatron has no iteration 0: untrained weights are a release.
void place_iteration(const MegatronTargetOptions& options, int64_t iteration, ArchiveSinkOptions& sink) {
  sink.root = options.root;
  sink.folder = iteration == 0 ? kMegatronRelease : megatron_iteration_folder(iteration);
  if (const fs::path folder = sink.root / sink.folder; fs::exists(folder)) {
    throw Error(ErrorCode::kInvalidArgument, cat(folder.string(), " already exists; give another --save-dir"));
  }
  sink.writing = options.writing;
  sink.pointers.emplace_back(kMegatronTracker, iteration == 0 ? kMegatronRelease : std::to_string(iteration));
}

}  // namespace ms::convert
