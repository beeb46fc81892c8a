#include "train/features/tp_overlap.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kOverlap = "--tp-comm-overlap";
constexpr const char* kCoc = "--use-ascend-coc";
constexpr const char* kMc2 = "--use-ascend-mc2";

bool gives_coc(const TrainerConfig& config) { return config.parallel.use_ascend_coc; }
bool gives_mc2(const TrainerConfig& config) { return config.parallel.use_ascend_mc2; }
bool gives_overlap(const TrainerConfig& config) { return config.parallel.tp_comm_overlap; }
bool has_tp(const TrainerConfig& config) { return config.parallel.tensor_model_parallel_size > 1; }
// Layers with experts, or latent attention, do not overlap theirs yet.
bool is_not_overlapped(const TrainerConfig& config) {
  return config.model.has_experts() || config.model.multi_latent_attention;
}

// With TP: there is something to hide.
bool can_overlap(const TrainerConfig& config) { return has_tp(config) && !is_not_overlapped(config); }

std::string no_effect(const char* flag, const char* why) { return core::cat(flag, " has no effect with ", why); }
constexpr const char* kOneRank = "--tensor-model-parallel-size 1: no tensor-parallel ranks communicate";
constexpr const char* kNotOverlapped =
    "--num-experts or --multi-latent-attention yet, and results are the same without it";

}  // namespace

layout::TensorOverlap tensor_overlap(const TrainerConfig& config) {
  if (!can_overlap(config)) return {};
  const ModelParallelConfig& parallel = config.parallel;
  layout::TensorOverlap overlap{.backward = parallel.tp_comm_overlap};
  if (parallel.use_ascend_mc2) overlap = {.backward = true, .parts = layout::TensorOverlap::kAutomatic};
  if (parallel.use_ascend_coc && parallel.coc_mode != 0)
    overlap = {.backward = true, .parts = parallel.coc_mode == 1 ? 1 : parallel.coc_parallel_num};
  return overlap;
}

Feature tp_comm_overlap_feature() {
  return {
      .name = "tp-comm-overlap",
      .level = 2,
      .effect =
          "Sums the gradients of inputs over the TP ranks while the gradients of weights are computed: the same bits "
          "and bytes, hidden, for the memory of a hidden state",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<TpCommOverlapConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return gives_overlap(c) && can_overlap(c); },
      .ineffective = {{[](const TrainerConfig& c) { return gives_overlap(c) && !has_tp(c); },
                       no_effect(kOverlap, kOneRank)},
                      {[](const TrainerConfig& c) { return gives_overlap(c) && has_tp(c) && is_not_overlapped(c); },
                       no_effect(kOverlap, kNotOverlapped)}},
  };
}

Feature ascend_coc_feature() {
  return {
      .name = "ascend-coc",
      .level = 2,
      .effect =
          "Cuts products of tensor parallelism in parts, each on its way while the next one is computed: the same "
          "bytes in more messages, hidden",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<AscendCocConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return gives_coc(c) && can_overlap(c) && c.parallel.coc_mode != 0; },
      .rules = {excludes(kCoc, gives_coc, kMc2, gives_mc2)},
      .ineffective = {{[](const TrainerConfig& c) { return gives_coc(c) && !has_tp(c); }, no_effect(kCoc, kOneRank)},
                      {[](const TrainerConfig& c) { return gives_coc(c) && has_tp(c) && is_not_overlapped(c); },
                       no_effect(kCoc, kNotOverlapped)},
                      {[](const TrainerConfig& c) {
                         return !gives_coc(c) && (c.parallel.coc_parallel_num != 1 || c.parallel.coc_mode != -1);
                       },
                       "--coc-parallel-num and --coc-mode have no effect without --use-ascend-coc"}},
      .check =
          [](const TrainerConfig& c, int) {
            const int parts = c.parallel.coc_parallel_num, mode = c.parallel.coc_mode;
            require(parts == 1 || parts == 2 || parts == 4 || parts == 8, "--coc-parallel-num ", parts,
                    ": expected 1, 2, 4 or 8");
            require(mode >= -1 && mode <= 2, "--coc-mode ", mode, ": expected -1, 0, 1 or 2");
            if (!gives_coc(c) || tensor_overlap(c).parts == 1) return;
            const int pieces = parts * (c.parallel.sequence_parallel ? c.parallel.tensor_model_parallel_size : 1);
            const int cp = c.parallel.context_parallel_size;
            require(c.training.seq_length / cp % pieces == 0, kCoc, ": --seq-length ", c.training.seq_length,
                    cp > 1 ? core::cat(" / --context-parallel-size ", cp) : "", " is not a multiple of ", pieces,
                    ", --coc-parallel-num", c.parallel.sequence_parallel ? " times --tensor-model-parallel-size" : "");
          },
  };
}

Feature ascend_mc2_feature() {
  return {
      .name = "ascend-mc2",
      .level = 2,
      .effect = "As ascend-coc, in as many parts as leave each of them large",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<AscendMc2Config>("parallel", config.parallel);
            fields.alias("use-mc2", "use_ascend_mc2", "true");
          },
      .is_active = [](const TrainerConfig& c) { return gives_mc2(c) && can_overlap(c); },
      .rules = {needs(
          kMc2, [](const TrainerConfig& c) { return gives_mc2(c) && has_tp(c); }, "--sequence-parallel",
          [](const TrainerConfig& c) { return c.parallel.sequence_parallel; },
          ": products and gathers of parts of the sequence are one")},
      .ineffective = {{[](const TrainerConfig& c) { return gives_mc2(c) && !has_tp(c); }, no_effect(kMc2, kOneRank)},
                      {[](const TrainerConfig& c) { return gives_mc2(c) && has_tp(c) && is_not_overlapped(c); },
                       no_effect(kMc2, kNotOverlapped)}},
  };
}

}  // namespace ms::train
