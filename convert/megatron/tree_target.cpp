#include "convert/megatron/stage_pickle.h"
#include "convert/megatron/stage_plan.h"
#include "convert/megatron/target_state.h"
#include "convert/megatron/tree.h"
#include "convert/megatron_target.h"
#include "convert/torch/archive_sink.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;

class TreePlanner {
 public:
  TreePlanner(const ckpt::Source& source, const MegatronTargetOptions& options, const WeightDType& dtype)
      : source_(source), options_(options), dtype_(dtype), model_(megatron_target_model(source, options)) {}

  MegatronTarget plan(std::vector<std::string>& decisions) {
    const auto state =
        std::make_shared<const MegatronTargetState>(plan_target_state(source_, options_, model_, dtype_, decisions));
    describe(*state, decisions);
    MegatronTarget target;
    ArchiveSinkOptions sink;
    const int tp_size = model_.layout.tensor_model_parallel_size, pp_size = model_.layout.pipeline_model_parallel_size;
    for (int pp = 0; pp < pp_size; ++pp) {
      const auto stage = std::make_shared<const StagePlan>(
          plan_stage(model_, pp, options_.naming, state->optimizer, state->step, dtype_));
      const bool last = pp + 1 == pp_size;
      for (int tp = 0; tp < tp_size; ++tp) {
        const std::string folder = megatron_rank_folder(tp, pp, pp_size);
        add_targets(stage->model, tp, static_cast<int32_t>(sink.files.size()), target.shards, sink.places);
        sink.files.push_back(
            {cat(folder, "/", kMegatronModelFile),
             {{0, stage->model.storage_bytes, [state, stage, last] { return model_pickle(*state, *stage, last); },
               stage->model.contents}}});
        if (state->optimizer != MegatronOptimizerForm::kDistributed) continue;
        add_targets(stage->optimizer, tp, static_cast<int32_t>(sink.files.size()), target.shards, sink.places);
        sink.files.push_back({cat(folder, "/", kMegatronOptimizerFile),
                              {{0, stage->optimizer.storage_bytes, [stage] { return optimizer_pickle(*stage); }, {}}}});
      }
    }
    place_iteration(options_, state->iteration, sink);
    target.sink = make_archive_sink(std::move(sink));
    return target;
  }

 private:
  void describe(const MegatronTargetState& state, std::vector<std::string>& decisions) const;
  void add_targets(const StageFile& file, int tp, int32_t index, ckpt::ShardTable& shards,
                   std::vector<ArchivePlace>& places) const;

  const ckpt::Source& source_;
  const MegatronTargetOptions& options_;
  const WeightDType& dtype_;
  MegatronModel model_;
};

void TreePlanner::describe(const MegatronTargetState& state, std::vector<std::string>& decisions) const {
  if (!model_.config.untie_embeddings_and_output_weights && model_.layout.pipeline_model_parallel_size > 1) {
    decisions.push_back(cat("the last stage gets a copy of the word embeddings, ", kMegatronOutput));
  }
  const bool local = options_.naming == MegatronNaming::kLocal;
  decisions.push_back(
      cat("norms have the names of ",
          local ? "megatron-core's own layers (--transformer-impl local)" : "Transformer Engine's layers",
          "; --target-norm-naming ", local ? "te" : "local", " writes the others"));
  if (state.optimizer == MegatronOptimizerForm::kDistributed) {
    decisions.push_back(
        cat(kMegatronOptimizerFile, " is laid out for runs without --overlap-grad-reduce (one bucket a buffer)"));
  }
}

void TreePlanner::add_targets(const StageFile& file, int tp, int32_t index, ckpt::ShardTable& shards,
                              std::vector<ArchivePlace>& places) const {
  const int tp_size = model_.layout.tensor_model_parallel_size;
  for (const StageTensor& tensor : file.tensors) {
    const ckpt::ParameterSpec& spec = model_.specs[tensor.parameter->spec];
    const core::TensorRole role = filled_from(source_, options_.with_optimizer, spec.key, tensor.role, tensor.dtype);
    const auto elements = static_cast<int64_t>(tensor.parameter->tensor.elements());
    int64_t first = tensor.first;
    for (ckpt::Box& box : ckpt::boxes_of_local_range(spec, model_.padded, tp_size, tp, 0, elements)) {
      places.push_back({index, 0, static_cast<int32_t>(tensor.storage), first * core::size_of(tensor.dtype), 0});
      first += core::num_elements(box.extent);
      shards.push_back({spec.key, role, tensor.dtype, spec.global_shape, std::move(box.offset), std::move(box.extent)});
    }
  }
}

}  // namespace

MegatronTarget make_megatron_tree_target(const ckpt::Source& source, const MegatronTargetOptions& options,
                                         const std::function<core::DType(const std::string& key)>& dtype,
                                         std::vector<std::string>& decisions) {
  return TreePlanner(source, options, dtype).plan(decisions);
}

}  // namespace ms::convert
