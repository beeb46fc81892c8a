#include "train/dealing_text.h"

#include <algorithm>

#include "core/layout/formulas/flops.h"
#include "core/layout/formulas/rounds.h"
#include "train/format.h"

namespace ms::train {
namespace {

// Micro-batches of a number of ranks, and what each exchanges in one of the longest samples.
struct DegreePlan {
  layout::DegreeLengths lengths;
  std::string group;             // none: one rank
  int64_t calls = 0, bytes = 0;  // of all operations

  bool has_samples() const { return lengths.shortest <= lengths.longest; }
};

std::vector<DegreePlan> degrees_of(const layout::TrainingStep& step) {
  std::vector<DegreePlan> degrees;
  for (const layout::DegreeLengths& of : layout::degree_lengths(step)) {
    DegreePlan& plan = degrees.emplace_back(DegreePlan{of, "", 0, 0});
    if (of.degree == 1) continue;
    plan.group = layout::group_name(layout::group_of_degree(step.grid(), of.degree));
    for (const layout::Traffic& traffic : layout::round_traffic(step, of.degree, of.padded, /*stage=*/0))
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
        plan.has_samples() ? core::cat(plan.lengths.shortest, "-", plan.lengths.longest) : "none alone";
    text += format("  %5d  %18s  %-6s", plan.lengths.degree, tokens.c_str(),
                   plan.lengths.degree == 1 ? "-" : plan.group.c_str()) +
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
    const auto tokens = [&](int64_t count) { return plan.has_samples() ? nlohmann::json(count) : nlohmann::json(); };
    json["degrees"].push_back({{"ranks", plan.lengths.degree},
                               {"shortest", tokens(plan.lengths.shortest)},
                               {"longest", tokens(plan.lengths.longest)},
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
