#include "train/features/hybrid_context_parallel.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kHybrid = "--hybrid-context-parallel";
constexpr const char* kMaxSeqlen = "--max-seqlen-per-dp-cp-rank";

bool deals_samples(const TrainerConfig& config) { return config.parallel.hybrid_context_parallel; }
bool has_max_seqlen(const TrainerConfig& config) { return config.parallel.max_seqlen_per_dp_cp_rank.has_value(); }

void check_hybrid_context_parallel(const TrainerConfig& config, int) {
  if (!has_max_seqlen(config)) return;
  const int64_t most = *config.parallel.max_seqlen_per_dp_cp_rank, seq = config.training.seq_length;
  require(most > 0, kMaxSeqlen, " ", most, ": at least 1");
  if (!deals_samples(config)) return;
  const int64_t needed = seq / most + (seq % most > 0 ? 1 : 0);
  require(needed <= config.parallel.context_parallel_size, kMaxSeqlen, " ", most, ": a sample of --seq-length ", seq,
          " needs ", needed, " ranks, but --context-parallel-size is ", config.parallel.context_parallel_size,
          ", which all samples have");
}

std::vector<std::string> notices_of_dealing(const TrainerConfig& config) {
  if (!deals_samples(config) || !config.model.has_experts()) return {};
  return {
      "--hybrid-context-parallel with --num-experts: balance losses, capacities and sinkhorn depend on which samples "
      "share a micro-batch, so losses differ from those in the order of samples"};
}

}  // namespace

Feature hybrid_context_parallel_feature() {
  return {
      .name = "hybrid-context-parallel",
      .level = 0,
      .effect = "Deals the samples of a step to the replicas by their FLOPs: each computes as many, and about as much",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<HybridContextParallelConfig>("parallel", config.parallel); },
      .is_active = deals_samples,
      .rules = {needs(kHybrid, deals_samples, kMaxSeqlen, has_max_seqlen, ", as in Megatron"),
                needs(
                    kHybrid, deals_samples, "--reset-attention-mask or --variable-seq-lengths",
                    [](const TrainerConfig& c) {
                      return c.training.reset_attention_mask || c.parallel.variable_seq_lengths;
                    },
                    ": without them all samples cost the same"),
                needs(
                    kHybrid, deals_samples, "--calculate-per-token-loss",
                    [](const TrainerConfig& c) { return c.training.calculate_per_token_loss; },
                    ", as in Megatron: the loss must not depend on which samples share a micro-batch")},
      .ineffective = {{[](const TrainerConfig& c) { return has_max_seqlen(c) && !deals_samples(c); },
                       "--max-seqlen-per-dp-cp-rank has no effect without --hybrid-context-parallel"}},
      .check = check_hybrid_context_parallel,
      .notices = notices_of_dealing,
  };
}

}  // namespace ms::train
