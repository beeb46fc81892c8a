#include "convert/megatron_target.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "convert/megatron/iterations.h"
#include "convert/megatron/progress.h"
#include "convert/megatron/stage_pickle.h"
#include "convert/megatron/stage_plan.h"
#include "convert/megatron/tree.h"
#include "convert/torch/archive_sink.h"
#include "core/error.h"
#include "core/io/file.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

constexpr const char* kEmbedding = "embedding.word_embeddings.weight";

class TargetPlanner {
 public:
  TargetPlanner(const ckpt::Source& source, const MegatronTargetOptions& options,
                const std::function<DType(const std::string& key)>& dtype, std::vector<std::string>& decisions)
      : source_(source), options_(options), dtype_(dtype), decisions_(decisions) {
    model_.config = source.info().model;
    model_.padded = model_.config;
    if (options.make_vocab_size_divisible_by > 0) {
      model_.padded.make_vocab_size_divisible_by = options.make_vocab_size_divisible_by;
    }
    model_.layout = options.layout;
    ckpt::validate_layout(model_.layout, model_.config);
    model_.specs = ckpt::parameter_specs(model_.config);
  }

  MegatronTarget plan() {
    plan_state();
    describe();
    MegatronTarget target;
    ArchiveSinkOptions sink;
    const auto state = std::make_shared<const MegatronTreeState>(std::move(state_));
    const int tp_size = model_.layout.tensor_model_parallel_size, pp_size = model_.layout.pipeline_model_parallel_size;
    for (int pp = 0; pp < pp_size; ++pp) {
      const auto stage = std::make_shared<const StagePlan>(
          plan_stage(model_, pp, options_.naming, state->optimizer, state->step, dtype_));
      const bool last = pp + 1 == pp_size;
      for (int tp = 0; tp < tp_size; ++tp) {
        const std::string folder = megatron_rank_folder(tp, pp, pp_size);
        add_targets(stage->model, tp, static_cast<int32_t>(sink.files.size()), target.shards, sink.places);
        sink.files.push_back({cat(folder, "/", kMegatronModelFile), stage->model.storage_bytes,
                              [state, stage, last] { return model_pickle(*state, *stage, last); },
                              stage->model.contents});
        if (state->optimizer != MegatronOptimizerForm::kDistributed) continue;
        add_targets(stage->optimizer, tp, static_cast<int32_t>(sink.files.size()), target.shards, sink.places);
        sink.files.push_back({cat(folder, "/", kMegatronOptimizerFile),
                              stage->optimizer.storage_bytes,
                              [stage] { return optimizer_pickle(*stage); },
                              {}});
      }
    }
    const std::string name = iteration_name();
    sink.folder = fs::path(options_.root) / name;
    if (fs::exists(sink.folder)) {
      throw Error(ErrorCode::kInvalidArgument, cat(sink.folder.string(), " is there already; give another --save-dir"));
    }
    sink.write_path = options_.write_path;
    sink.committed = [root = fs::path(options_.root), iteration = state->iteration] {
      core::write_text_atomically((root / kMegatronTracker).string(),
                                  iteration == 0 ? kMegatronRelease : std::to_string(iteration));
    };
    target.sink = make_archive_sink(std::move(sink));
    return target;
  }

 private:
  // Megatron has no iteration 0: what was not trained is a release.
  std::string iteration_name() const {
    const int64_t iteration = source_.info().iteration;
    return iteration == 0 ? kMegatronRelease : megatron_iteration_folder(iteration);
  }
  void plan_state();
  void plan_optimizer();
  void add_args();
  void describe();
  TensorRole source_role(const StageTensor& tensor, const std::string& key) const;
  void add_targets(const StageFile& file, int tp, int32_t index, ckpt::ShardTable& shards,
                   std::vector<ArchivePlace>& places) const;
  void say(const auto&... parts) { decisions_.push_back(cat(parts...)); }

  const ckpt::Source& source_;
  const MegatronTargetOptions& options_;
  const std::function<DType(const std::string& key)>& dtype_;
  std::vector<std::string>& decisions_;
  MegatronModel model_;
  MegatronTreeState state_;
};

void TargetPlanner::plan_state() {
  const ckpt::CheckpointInfo& info = source_.info();
  state_.iteration = info.iteration;
  state_.args_form = options_.args;
  state_.naming = options_.naming;
  state_.scheduler = megatron_scheduler(info);
  if (options_.with_optimizer) plan_optimizer();
  add_args();
}

void TargetPlanner::plan_optimizer() {
  state_.optimizer =
      options_.use_distributed_optimizer ? MegatronOptimizerForm::kDistributed : MegatronOptimizerForm::kByPosition;
  const nlohmann::json& common = source_.info().common;
  state_.step = common.is_object() ? common.value("step", state_.iteration) : state_.iteration;
  if (const auto settings = adam_settings(source_.info())) {
    state_.adam = *settings;
  } else {
    say("Adam's betas and epsilon are not said by the source: Megatron's defaults, ", state_.adam.beta1, ", ",
        state_.adam.beta2, " and ", state_.adam.eps, ", are written");
  }
  if (state_.scheduler.is_null()) {
    say("the source has no whole learning-rate schedule, so opt_param_scheduler is left out; Megatron loads the "
        "optimizer "
        "only with it");
  }
  for (const ckpt::ParameterSpec& spec : model_.specs) {
    for (const OptimizerKind& moment : kMoments) {
      if (source_.shards().find(spec.key, moment.role)) continue;
      throw Error(ErrorCode::kUnsupported,
                  cat("the optimizer state has no ", moment.key, " of ", spec.key,
                      ", and Megatron keeps Adam's of all parameters; give --drop-optimizer to leave it out"));
    }
  }
}

void TargetPlanner::add_args() {
  const ckpt::ModelLayout& layout = model_.layout;
  const int tp = layout.tensor_model_parallel_size, pp = layout.pipeline_model_parallel_size;
  const int vpp = layout.virtual_pipeline_model_parallel_size;
  const DType weights = dtype_(kEmbedding);
  MegatronArgList& args = state_.args;
  args = megatron_args(model_.padded);
  for (auto& argument : megatron_progress_args(source_.info())) args.push_back(std::move(argument));
  // megatron/training/tokenizer: this one has a token for the end of a document besides.
  const bool null_tokenizer = std::any_of(args.begin(), args.end(), [](const auto& argument) {
    return argument.first == "tokenizer_type" && argument.second == MegatronArg("NullTokenizer");
  });
  for (auto& [name, value] : args) {
    if (null_tokenizer && name == "vocab_size") value = model_.config.vocab_size - 1;
  }
  const MegatronArg none;
  const MegatronArgList of_tree = {
      {"padded_vocab_size", model_.padded.padded_vocab_size(tp)},
      {"tensor_model_parallel_size", int64_t{tp}},
      {"pipeline_model_parallel_size", int64_t{pp}},
      {"virtual_pipeline_model_parallel_size", vpp > 1 ? MegatronArg(int64_t{vpp}) : none},
      {"num_layers_per_virtual_pipeline_stage",
       vpp > 1 ? MegatronArg(model_.config.num_layers / (int64_t{pp} * vpp)) : none},
      {"expert_model_parallel_size", int64_t{1}},
      {"context_parallel_size", int64_t{1}},
      {"data_parallel_size", int64_t{1}},
      {"world_size", int64_t{tp} * pp},
      {"bf16", weights == DType::kBf16},
      {"fp16", weights == DType::kFp16},
      {"params_dtype", from_core_dtype(weights)},
      {"transformer_impl", options_.naming == MegatronNaming::kLocal ? "local" : "transformer_engine"},
      {"optimizer", "adam"},
      {"use_distributed_optimizer", state_.optimizer == MegatronOptimizerForm::kDistributed},
      {"overlap_grad_reduce", false},
      {"ddp_bucket_size", none},
  };
  args.insert(args.end(), of_tree.begin(), of_tree.end());
}

void TargetPlanner::describe() {
  const ckpt::ModelLayout& layout = model_.layout;
  const int tp = layout.tensor_model_parallel_size;
  const int64_t vocab = model_.config.vocab_size, padded = model_.padded.padded_vocab_size(tp);
  if (padded > vocab) {
    say("the vocabulary of ", vocab, " rows is padded with ", padded - vocab, " rows of zeros to ", padded,
        ", a multiple of --make-vocab-size-divisible-by ", model_.padded.make_vocab_size_divisible_by, " x TP ", tp);
  }
  if (!model_.config.untie_embeddings_and_output_weights && layout.pipeline_model_parallel_size > 1) {
    say("the last stage gets a copy of the word embeddings, ", kMegatronOutput);
  }
  say("norms have the names of ",
      options_.naming == MegatronNaming::kLocal ? "megatron-core's own layers (--transformer-impl local)"
                                                : "Transformer Engine's layers",
      "; --target-norm-naming ", options_.naming == MegatronNaming::kLocal ? "te" : "local", " writes the others");
  if (model_.config.post_norm)
    say("norms behind attention and MLP have the names of MindSpeed-LLM; megatron-core has none");
  if (!megatron_knows_rope_scaling(model_.config)) {
    say("rope_scaling_type ", model_.config.rope_scaling_type,
        " with these settings is in args as MindSpeed-LLM has it; Megatron cannot scale so");
  }
  if (state_.iteration == 0) {
    say("the source has no iteration, so it goes to ", kMegatronRelease, ", from which Megatron loads weights only");
  } else {
    say("states of random generators are not carried over: load it with --no-load-rng");
  }
  if (state_.optimizer == MegatronOptimizerForm::kDistributed) {
    say(kMegatronOptimizerFile, " is laid out for runs without --overlap-grad-reduce (one bucket a buffer)");
  }
  if (state_.args_form == MegatronArgsForm::kOmit) {
    say("args are left out: what shape the model has is then said nowhere, and msckpt cannot read the tree");
  }
}

// The role in the source that a tensor of the tree is filled from: an fp32 model's weights are its masters, for
// Megatron as for us.
TensorRole TargetPlanner::source_role(const StageTensor& tensor, const std::string& key) const {
  const bool has_master = options_.with_optimizer && source_.shards().find(key, TensorRole::kMaster).has_value();
  if (tensor.role == TensorRole::kMaster && !has_master) return TensorRole::kParam;
  if (tensor.role == TensorRole::kParam && tensor.dtype == DType::kFp32 && has_master) return TensorRole::kMaster;
  return tensor.role;
}

void TargetPlanner::add_targets(const StageFile& file, int tp, int32_t index, ckpt::ShardTable& shards,
                                std::vector<ArchivePlace>& places) const {
  const int tp_size = model_.layout.tensor_model_parallel_size;
  for (const StageTensor& tensor : file.tensors) {
    const ckpt::ParameterSpec& spec = model_.specs[tensor.parameter->spec];
    const TensorRole role = source_role(tensor, spec.key);
    const auto elements = static_cast<int64_t>(tensor.parameter->tensor.elements());
    int64_t first = tensor.first;
    for (ckpt::Box& box : ckpt::boxes_of_local_range(spec, model_.padded, tp_size, tp, 0, elements)) {
      places.push_back({index, static_cast<int32_t>(tensor.storage), first * core::size_of(tensor.dtype)});
      first += core::num_elements(box.extent);
      shards.push_back({spec.key, role, tensor.dtype, spec.global_shape, std::move(box.offset), std::move(box.extent)});
    }
  }
}

}  // namespace

MegatronTarget make_megatron_target(const ckpt::Source& source, const MegatronTargetOptions& options,
                                    const std::function<DType(const std::string& key)>& dtype,
                                    std::vector<std::string>& decisions) {
  return TargetPlanner(source, options, dtype, decisions).plan();
}

}  // namespace ms::convert
