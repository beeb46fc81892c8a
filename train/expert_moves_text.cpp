#include "train/expert_moves_text.h"

#include "core/error.h"
#include "core/layout/formulas/expert_moves.h"
#include "train/format.h"

namespace ms::train {
namespace {

// Calls visit(stage, bytes) for the first rank of each stage.
template <class Visit>
void for_each_move(const layout::TrainingStep& step, const Visit& visit) {
  const layout::RankGrid grid = step.layout.grid();
  for (int stage = 0; stage < grid.pp; ++stage)
    visit(stage, layout::largest_expert_move(step, grid.rank({.pp = stage})));
}

}  // namespace

nlohmann::json expert_moves_json(const layout::TrainingStep& step) {
  nlohmann::json json = {{"every_steps", step.expert_placement_freq}, {"stages", nlohmann::json::array()}};
  for_each_move(step, [&](int, const layout::ExpertMoveBytes& move) {
    json["stages"].push_back({{"experts_per_rank", move.experts},
                              {"received_bytes_at_most", move.received},
                              {"gathered_bytes_at_most", move.gathered}});
  });
  return json;
}

std::string expert_moves_text(const layout::TrainingStep& step) {
  if (step.expert_placement_freq == 0) return "";
  std::string text =
      core::cat("\nmoves of experts every ", step.expert_placement_freq,
                " steps, of the first rank of a stage at most\n  stage  experts   received (MiB)   gathered "
                "before it (MiB)\n");
  for_each_move(step, [&](int stage, const layout::ExpertMoveBytes& move) {
    text += format("  %5d %8lld %16.3f %26.3f\n", stage, static_cast<long long>(move.experts), mib(move.received),
                   mib(move.gathered));
  });
  return text;
}

}  // namespace ms::train
