#include "train/features/hybrid_context_parallel.h"

#include <algorithm>
#include <bit>

#include "core/layout/process_group_table.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kHybrid = "--hybrid-context-parallel";
constexpr const char* kMaxSeqlen = "--max-seqlen-per-dp-cp-rank";

bool deals_samples(const TrainerConfig& config) { return config.parallel.hybrid_context_parallel; }
bool has_max_seqlen(const TrainerConfig& config) { return config.parallel.max_seqlen_per_dp_cp_rank.has_value(); }

bool chooses(const TrainerConfig& config) { return chooses_degrees(config.parallel); }

// What the groups of neighbours can do.
void check_degrees(const TrainerConfig& config) {
  if (!chooses(config)) return;
  const ModelParallelConfig& parallel = config.parallel;
  const int cp = parallel.context_parallel_size;
  require(std::has_single_bit(static_cast<unsigned>(cp)) && cp <= layout::kMaxChosenCp, "--context-parallel-size ", cp,
          ": with --hybrid-context-parallel and --variable-seq-lengths a power of two, at most ", layout::kMaxChosenCp);
  const auto is_of_any_degree = [](layout::ContextAlgorithm algorithm) {
    return algorithm != layout::ContextAlgorithm::kHybrid && !layout::is_adaptive(algorithm);
  };
  require(is_of_any_degree(context_algorithm(parallel)) &&
              std::ranges::all_of(context_algorithms_of_layers(parallel), is_of_any_degree),
          "--hybrid-context-parallel with --variable-seq-lengths and --context-parallel-algo hybrid_cp_algo (a2a+p2p), "
          "adaptive_cp_algo or hybrid_adaptive_cp_algo exclude each other: their groups are of one number of ranks; "
          "give ulysses_cp_algo, kvallgather_cp_algo or megatron_cp_algo");
}

void check_hybrid_context_parallel(const TrainerConfig& config, int) {
  check_degrees(config);
  if (!has_max_seqlen(config)) return;
  const int64_t most = *config.parallel.max_seqlen_per_dp_cp_rank, seq = config.training.seq_length;
  require(most > 0, kMaxSeqlen, " ", most, ": at least 1");
  if (!deals_samples(config)) return;
  const int64_t needed = seq / most + (seq % most > 0 ? 1 : 0);
  require(needed <= config.parallel.context_parallel_size, kMaxSeqlen, " ", most, ": a sample of --seq-length ", seq,
          " needs ", needed, " ranks, but --context-parallel-size is ", config.parallel.context_parallel_size,
          ", the most that a sample has");
}

std::vector<std::string> notices_of_dealing(const TrainerConfig& config) {
  if (!deals_samples(config) || !config.model.has_experts()) return {};
  return {
      "--hybrid-context-parallel with --num-experts: balance losses, capacities and sinkhorn depend on which samples "
      "share a micro-batch, so losses differ from those in the order of samples"};
}

}  // namespace

bool chooses_degrees(const ModelParallelConfig& parallel) {
  return parallel.hybrid_context_parallel && parallel.variable_seq_lengths && parallel.context_parallel_size > 1;
}

layout::SequenceShare share_of_degree(const ModelParallelConfig& parallel, int64_t seq_length, int degree,
                                      int cp_rank) {
  if (degree == 1) return {};
  return {context_algorithm(parallel), seq_length, degree, cp_rank % degree};
}

int64_t multiple_of_degree(const ModelParallelConfig& parallel, int degree) {
  const int64_t tp = parallel.sequence_parallel ? parallel.tensor_model_parallel_size : 1;
  return tp * layout::SequenceShare::parts(context_algorithm(parallel), degree);
}

Feature hybrid_context_parallel_feature() {
  constexpr const char* kChoosing =
      "--hybrid-context-parallel, --variable-seq-lengths and --context-parallel-size above 1";
  return {
      .name = "hybrid-context-parallel",
      .level = 0,
      .effect =
          "Deals the samples of a step to the replicas by their FLOPs: each computes as many, and about as much; "
          "samples of their own length to as many of the CP ranks as they need",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<HybridContextParallelConfig>("parallel", config.parallel); },
      .is_active = deals_samples,
      .rules = {needs(kHybrid, deals_samples, kMaxSeqlen, has_max_seqlen, ", as in Megatron"),
                needs(
                    kHybrid, deals_samples,
                    "--reset-attention-mask, --dataloader-inter-document-masking or --variable-seq-lengths",
                    [](const TrainerConfig& c) { return keeps_documents_apart(c) || c.parallel.variable_seq_lengths; },
                    ": without them all samples cost the same"),
                needs(
                    kHybrid, deals_samples, "--calculate-per-token-loss",
                    [](const TrainerConfig& c) { return c.training.calculate_per_token_loss; },
                    ", as in Megatron: the loss must not depend on which samples share a micro-batch"),
                excludes(
                    kChoosing, chooses, "--cp-window-size above 1",
                    [](const TrainerConfig& c) { return c.parallel.cp_window_size > 1; },
                    ": a ring has as many ranks as its samples need"),
                excludes(
                    kChoosing, chooses, "several chunks of layers on a stage",
                    [](const TrainerConfig& c) { return c.virtual_pipeline_model_parallel_size() > 1; },
                    ": how many micro-batches a step has depends on the lengths of its samples"),
                excludes(
                    kChoosing, chooses, "--mtp-num-layers",
                    [](const TrainerConfig& c) { return c.model.mtp_num_layers > 0; }, ", which is not supported yet")},
      .ineffective = {{[](const TrainerConfig& c) { return has_max_seqlen(c) && !deals_samples(c); },
                       "--max-seqlen-per-dp-cp-rank has no effect without --hybrid-context-parallel"}},
      .check = check_hybrid_context_parallel,
      .notices = notices_of_dealing,
  };
}

}  // namespace ms::train
