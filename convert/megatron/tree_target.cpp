#include "convert/megatron/stage_pickle.h"
#include "convert/megatron/stage_plan.h"
#include "convert/megatron/target_state.h"
#include "convert/megatron/tree.h"
#include "convert/megatron_target.h"
#include "convert/passthrough.h"
#include "convert/torch/archive_sink.h"
#include "core/error.h"
#include "core/layout/box.h"
#include "core/layout/parameter_specs.h"
#include "core/layout/tensor_cut.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

class TreePlanner {
 public:
  TreePlanner(const ckpt::Source& source, const MegatronTargetOptions& options, const WeightDType& dtype)
      : source_(source), options_(options), dtype_(dtype), model_(megatron_target_model(source, options)) {}

  MegatronTarget plan(std::vector<std::string>& decisions) {
    check();
    const auto state =
        std::make_shared<const MegatronTargetState>(plan_target_state(source_, options_, model_, dtype_, decisions));
    describe(*state, decisions);
    MegatronTarget target;
    ArchiveSinkOptions sink;
    const int pp_size = model_.layout.pipeline_model_parallel_size;
    const MegatronSpelling spelling{options_.naming, options_.moe_grouped_gemm};
    for (int pp = 0; pp < pp_size; ++pp) {
      const auto stage =
          std::make_shared<const StagePlan>(plan_stage(model_, pp, spelling, state->optimizer, state->step, dtype_));
      const bool last = model_.layers.is_last_chunk(pp, model_.layout.virtual_pipeline_model_parallel_size - 1);
      for (const auto& [tp, ep] : model_.experts.ranks()) {
        const std::string folder = megatron_rank_folder(tp, pp, pp_size, ep, model_.experts.ep);
        add_targets(stage->model, tp, ep, 0, static_cast<int32_t>(sink.files.size()), target.shards, sink.places);
        sink.files.push_back(
            {cat(folder, "/", kMegatronModelFile),
             {{0, stage->model.storage_bytes, [state, stage, last] { return model_pickle(*state, *stage, last); },
               stage->model.contents}}});
        if (state->optimizer != MegatronOptimizerForm::kDistributed) continue;
        Archive archive;
        std::vector<bool> held;
        for (const StagePlan::Optimizer& optimizer : stage->optimizers) {
          held.push_back(model_.experts.keeps_optimizer(tp, ep, optimizer.part == OptimizerPart::kExperts));
          if (!held.back()) continue;
          add_targets(optimizer.file, tp, ep, archive.storage_bytes.size(), static_cast<int32_t>(sink.files.size()),
                      target.shards, sink.places);
          archive.storage_bytes.insert(archive.storage_bytes.end(), optimizer.file.storage_bytes.begin(),
                                       optimizer.file.storage_bytes.end());
        }
        archive.pickle = [stage, held] { return optimizer_pickle(*stage, held); };
        sink.files.push_back({cat(folder, "/", kMegatronOptimizerFile), {std::move(archive)}});
      }
    }
    add_passthrough_files(source_, sink, target.shards);
    place_iteration(options_, state->iteration, sink);
    target.sink = make_archive_sink(std::move(sink));
    return target;
  }

 private:
  void check() const;
  void describe(const MegatronTargetState& state, std::vector<std::string>& decisions) const;
  // first_storage: index of the first storage of `file` in the archive.
  void add_targets(const StageFile& file, int tp, int ep, size_t first_storage, int32_t index, ckpt::ShardTable& shards,
                   std::vector<ArchivePlace>& places) const;

  const ckpt::Source& source_;
  const MegatronTargetOptions& options_;
  const WeightDType& dtype_;
  MegatronModel model_;
};

void TreePlanner::check() const {
  const ExpertGrid& grid = model_.experts;
  if (grid.tp % grid.etp != 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        cat("--expert-tensor-parallel-size ", grid.etp, " does not divide --target-tensor-parallel-size ", grid.tp,
            ": the folders of a mg result could not show which part of an expert they contain; a dist result can"));
  }
}

void TreePlanner::describe(const MegatronTargetState& state, std::vector<std::string>& decisions) const {
  const PipelineExtras& extras = model_.layers.extras();
  const char* end = extras.dualpipev ? "the second chunk of the first stage" : "the last stage";
  if (extras.dualpipev) {
    decisions.push_back(
        "layers are arranged in a V, for MindSpeed-LLM's --schedules-method dualpipev: the first stage has "
        "the first and the last layers, the final norm and the output layer");
  }
  if (!extras.noop_layers.empty()) {
    decisions.push_back(cat("of ", model_.layers.num_slots(), " layers ", extras.noop_layers.size(),
                            " are no-op layers without weights, for MindSpeed-LLM's --noop-layers"));
  }
  if (!model_.config.untie_embeddings_and_output_weights && model_.layout.pipeline_model_parallel_size > 1) {
    decisions.push_back(cat(end, " gets a copy of the word embeddings, ", kMegatronOutput));
  }
  const bool local = options_.naming == MegatronNaming::kLocal;
  decisions.push_back(
      cat("norms are named as in ",
          local ? "megatron-core's own layers (--transformer-impl local)" : "Transformer Engine's layers",
          "; --target-norm-naming ", local ? "te" : "local", " writes the others"));
  if (model_.config.has_experts()) {
    const char* kind = !options_.moe_grouped_gemm ? "one by one (--moe-grouped-gemm groups them)"
                       : local                    ? "in two tensors per rank, weight1 and weight2"
                                                  : "grouped as by Transformer Engine's layers";
    decisions.push_back(cat("experts are stored ", kind));
  }
  if (model_.config.mtp_num_layers > 0 && model_.layout.pipeline_model_parallel_size > 1) {
    decisions.push_back(cat(end, ", which has multi-token prediction layers, gets a copy of the word embeddings"));
  }
  if (state.optimizer == MegatronOptimizerForm::kDistributed) {
    decisions.push_back(
        cat(kMegatronOptimizerFile, " is laid out for runs without --overlap-grad-reduce (one bucket per buffer)"));
  }
}

void TreePlanner::add_targets(const StageFile& file, int tp, int ep, size_t first_storage, int32_t index,
                              ckpt::ShardTable& shards, std::vector<ArchivePlace>& places) const {
  for (const StageTensor& tensor : file.tensors) {
    const layout::ParameterSpec& spec = model_.specs[model_.spec_on_rank(tensor.parameter->spec, tp, ep)];
    const core::TensorRole role = filled_from(source_, options_.with_optimizer, spec.key, tensor.role, tensor.dtype);
    const MegatronModel::Cut cut = model_.cut_of(spec, tp);
    const auto elements = static_cast<int64_t>(tensor.parameter->tensor.elements());
    int64_t first = tensor.first;
    for (layout::Box& box : layout::boxes_of_local_range(spec, model_.padded, cut.size, cut.rank, 0, elements)) {
      places.push_back({index, 0, static_cast<int32_t>(first_storage + tensor.storage),
                        first * core::size_of(tensor.dtype), tensor.transposed_columns});
      // In a transposed part a box's rows are stored as columns, so the next box begins that many columns further.
      first += tensor.transposed_columns > 0 ? box.extent[0] : core::num_elements(box.extent);
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
