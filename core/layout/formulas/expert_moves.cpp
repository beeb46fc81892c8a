#include "core/layout/formulas/expert_moves.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/layout/tensor_cut.h"

namespace ms::layout {

ExpertMoveBytes largest_expert_move(const TrainingStep& step, int rank) {
  const RankGrid grid = step.layout.grid();
  BufferCut cut(step.layout.sharding(), grid);
  std::vector<std::pair<BufferCut::Place, int64_t>> tensors;  // that train, and their elements
  ExpertMoveBytes move;
  const int64_t element = core::size_of(step.dtype);
  int64_t layer = -1, expert = -1;
  for (const ParameterSpec& spec : parameter_specs(step.model)) {
    if (spec.is_buffer || !rank_holds(spec, step.model, step.layout, rank)) continue;
    const int64_t numel = core::num_elements(local_shape(spec, step.model, cut_of(spec, grid, rank).size));
    const bool trains = !is_frozen(step, spec.key);
    const BufferCut::Place place = trains ? cut.add(spec, numel) : BufferCut::Place();
    if (spec.expert < 0) continue;
    const int64_t own_layer = spec.layer + spec.mtp_layer;
    if (std::exchange(layer, own_layer) != own_layer || expert != spec.expert) ++move.experts;
    expert = spec.expert;
    if (trains) {
      tensors.emplace_back(place, numel);
    } else {
      move.received += numel * element;
    }
  }
  cut.finish();
  const bool divides_weights = cut.sharding().weights();
  const auto roles = static_cast<int64_t>(step.optimizer_state.size()) + (step.dtype == core::DType::kFp32 ? 0 : 1);
  const int64_t state = roles * core::size_of(core::DType::kFp32);
  for (const auto& [place, numel] : tensors) {
    const BufferCut::Unit& unit = cut.units()[place.unit];
    const int64_t begin = cut.begin_of(place);
    const FlatRange part = cut.owned_part({begin, begin + numel}, owner_of(unit, grid, rank));
    const int64_t owned = std::max<int64_t>(0, part.end - part.begin);
    move.received += owned * state + (divides_weights ? owned : numel) * element;
    move.gathered += (numel - owned) * (state + (divides_weights ? element : 0));
  }
  return move;
}

}  // namespace ms::layout
