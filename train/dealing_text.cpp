#include "train/dealing_text.h"

#include "core/layout/formulas/flops.h"
#include "train/format.h"

namespace ms::train {

nlohmann::json dealing_json(const layout::TrainingStep& step) {
  const layout::RankGrid grid = step.grid();
  const int64_t attention = layout::attention_flops(step.model, step.seq_length);
  return {{"samples", step.num_microbatches * step.micro_batch_size * grid.dp},
          {"replicas", grid.dp},
          {"rounds", step.num_microbatches},
          {"ranks_of_a_sample", grid.cp},
          {"weight_flops", layout::model_flops_per_sample(step.model, step.seq_length, grid.tp) - attention},
          {"attention_flops", attention}};
}

std::string dealing_text(const layout::TrainingStep& step) {
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
