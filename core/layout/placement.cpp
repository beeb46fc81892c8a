#include "core/layout/placement.h"

#include "core/error.h"

namespace ms::layout {

Placement::Placement(int stages, int chunks, Order order, const std::vector<int64_t>& layers)
    : stages_(stages), chunks_(chunks), order_(order), first_layer_{0} {
  MS_CHECK(stages > 0 && chunks > 0 && layers.size() == static_cast<size_t>(positions()), layers.size(),
           " numbers of layers for ", stages, " stages of ", chunks, " chunks");
  for (const int64_t count : layers) first_layer_.push_back(first_layer_.back() + count);
}

Placement Placement::even(int stages, int chunks, int64_t num_layers, Order order) {
  const int64_t positions = int64_t{stages} * chunks;
  MS_CHECK(positions > 0 && num_layers % positions == 0, num_layers, " layers at ", positions, " places");
  return {stages, chunks, order, std::vector<int64_t>(static_cast<size_t>(positions), num_layers / positions)};
}

Place Placement::place(int position) const {
  const int chunk = position / stages_, stage = position % stages_;
  return {runs_backwards(chunk) ? stages_ - 1 - stage : stage, chunk};
}

int Placement::position(Place place) const {
  return place.chunk * stages_ + (runs_backwards(place.chunk) ? stages_ - 1 - place.stage : place.stage);
}

LayerRange Placement::layers(Place place) const {
  const auto at = static_cast<size_t>(position(place));
  return {first_layer_[at], first_layer_[at + 1] - first_layer_[at]};
}

}  // namespace ms::layout
