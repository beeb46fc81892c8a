#include "train/dealing_text.h"

#include <algorithm>

#include "core/layout/formulas/flops.h"
#include "core/layout/formulas/round_traffic.h"
#include "train/format.h"

namespace ms::train {
namespace {

// Micro-batches of a number of ranks, and what each exchanges in one of the longest samples.
struct DegreePlan {
  int ranks = 1;
  int64_t shortest = 0, longest = 0;  // tokens of a sample
  std::string group;                  // none: one rank
  int64_t calls = 0, bytes = 0;       // of all operations
};

std::vector<DegreePlan> degrees_of(const layout::TrainingStep& step) {
  std::vector<DegreePlan> degrees;
  const int64_t most = step.max_seqlen_per_dp_cp_rank;
  const int64_t tp = step.sequence_parallel ? step.layout.tensor_model_parallel_size : 1;
  for (int ranks = 1; most > 0 && ranks <= step.layout.context_parallel_size; ranks *= 2) {
    DegreePlan& plan = degrees.emplace_back(DegreePlan{.ranks = ranks});
    plan.shortest = ranks == 1 ? 1 : std::min(step.seq_length, most * (ranks / 2)) + 1;
    plan.longest = std::min(step.seq_length, most * ranks);
    if (ranks == 1) continue;
    plan.group = layout::group_name(layout::group_of_degree(step.grid(), ranks));
    const int64_t multiple = tp * layout::SequenceShare::parts(step.context_algorithm, ranks);
    const int64_t padded = (plan.longest + multiple - 1) / multiple * multiple;
    for (const layout::Traffic& traffic : layout::round_traffic(step, ranks, padded, /*stage=*/0))
      plan.calls += traffic.calls, plan.bytes += traffic.payload_bytes;
  }
  return degrees;
}

std::string degrees_text(const layout::TrainingStep& step) {
  const layout::RankGrid grid = step.grid();
  std::string text = core::cat(
      "\nmicro-batches of as many ranks as their longest sample needs, with ", step.max_seqlen_per_dp_cp_rank,
      " tokens on a rank at most\n  ", step.num_microbatches * step.micro_batch_size * grid.dp,
      " samples in a step, in rounds of all ", grid.replicas(), " ranks (CP ", grid.cp, " x DP ", grid.dp,
      "): the longest first, in each the costliest to the neighbours with the least so far; where samples of a kind do "
      "not fill a round, more ranks share the longest\n"
      "  ranks  tokens of a sample  group   calls and MiB of a rank of the first stage, in one of the longest\n");
  for (const DegreePlan& plan : degrees_of(step)) {
    const std::string tokens =
        plan.shortest > plan.longest ? "none alone" : core::cat(plan.shortest, "-", plan.longest);
    text += format("  %5d  %18s  %-6s", plan.ranks, tokens.c_str(), plan.ranks == 1 ? "-" : plan.group.c_str()) +
            format("  %5lld %8.3f\n", static_cast<long long>(plan.calls), mib(plan.bytes));
  }
  return text;
}

}  // namespace

nlohmann::json dealing_json(const layout::TrainingStep& step) {
  const layout::RankGrid grid = step.grid();
  const int64_t attention = layout::attention_flops(step.model, step.seq_length);
  nlohmann::json json = {
      {"samples", step.num_microbatches * step.micro_batch_size * grid.dp},
      {"replicas", grid.dp},
      {"rounds", step.num_microbatches},
      {"ranks_of_a_sample", grid.cp},
      {"weight_flops", layout::model_flops_per_sample(step.model, step.seq_length, grid.tp) - attention},
      {"attention_flops", attention}};
  for (const DegreePlan& plan : degrees_of(step)) {
    const auto tokens = [&](int64_t count) {
      return plan.shortest > plan.longest ? nlohmann::json() : nlohmann::json(count);
    };
    json["degrees"].push_back({{"ranks", plan.ranks},
                               {"shortest", tokens(plan.shortest)},
                               {"longest", tokens(plan.longest)},
                               {"group", plan.group},
                               {"calls", plan.calls},
                               {"bytes", plan.bytes}});
  }
  return json;
}

std::string dealing_text(const layout::TrainingStep& step) {
  if (step.max_seqlen_per_dp_cp_rank > 0) return degrees_text(step);
  const nlohmann::json deal = dealing_json(step);
  const auto gflop = [&](const char* name) { return deal[name].get<double>() * 1e-9; };
  std::string text = core::cat("\nsamples dealt to replicas by their FLOPs\n  ", deal["samples"].get<int64_t>(),
                               " in a step, to ", deal["replicas"].get<int>(), " replicas in ",
                               deal["rounds"].get<int64_t>(), " rounds of ", step.micro_batch_size,
                               " to each: the costliest first, and to the replica with the least so far; context "
                               "parallelism of degree ",
                               deal["ranks_of_a_sample"].get<int>(), " for all\n");
  return text + format(
                    "  %lld tokens need %.3f GFLOP of products with weights, and, as one document, %.3f GFLOP of "
                    "attention; log lines say how even it is\n",
                    static_cast<long long>(step.seq_length), gflop("weight_flops"), gflop("attention_flops"));
}

}  // namespace ms::train
