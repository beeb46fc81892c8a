#include "core/layout/placement.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace ms::layout {

Placement::Placement(int stages, int chunks, Order order, const std::vector<int64_t>& slots,
                     std::vector<int64_t> noop_slots)
    : stages_(stages), chunks_(chunks), order_(order), first_slot_{0}, noop_slots_(std::move(noop_slots)) {
  MS_CHECK(stages > 0 && chunks > 0 && slots.size() == static_cast<size_t>(positions()), slots.size(),
           " numbers of layers for ", stages, " stages of ", chunks, " chunks");
  for (const int64_t count : slots) first_slot_.push_back(first_slot_.back() + count);
}

Placement Placement::even(int stages, int chunks, int64_t num_slots, Order order, std::vector<int64_t> noop_slots) {
  const int64_t positions = int64_t{stages} * chunks;
  MS_CHECK(positions > 0 && num_slots % positions == 0, num_slots, " layers at ", positions, " places");
  return {stages, chunks, order, std::vector<int64_t>(static_cast<size_t>(positions), num_slots / positions),
          std::move(noop_slots)};
}

Place Placement::place(int position) const {
  const int chunk = position / stages_, stage = position % stages_;
  return {runs_backwards(chunk) ? stages_ - 1 - stage : stage, chunk};
}

int Placement::position(Place place) const {
  return place.chunk * stages_ + (runs_backwards(place.chunk) ? stages_ - 1 - place.stage : place.stage);
}

std::optional<Place> Placement::before(Place at) const {
  return is_first(at) ? std::nullopt : std::optional(place(position(at) - 1));
}

std::optional<Place> Placement::behind(Place at) const {
  return is_last(at) ? std::nullopt : std::optional(place(position(at) + 1));
}

int64_t Placement::layers_before(int64_t slot) const {
  return slot - (std::lower_bound(noop_slots_.begin(), noop_slots_.end(), slot) - noop_slots_.begin());
}

LayerRange Placement::layers(Place place) const {
  const auto at = static_cast<size_t>(position(place));
  const int64_t first = layers_before(first_slot_[at]);
  return {first, layers_before(first_slot_[at + 1]) - first};
}

std::vector<std::optional<int64_t>> Placement::slots(Place place) const {
  const auto at = static_cast<size_t>(position(place));
  std::vector<std::optional<int64_t>> layers;
  for (int64_t slot = first_slot_[at]; slot < first_slot_[at + 1]; ++slot) {
    const bool is_noop = std::binary_search(noop_slots_.begin(), noop_slots_.end(), slot);
    layers.push_back(is_noop ? std::nullopt : std::optional(layers_before(slot)));
  }
  return layers;
}

Placement::Slot Placement::slot_of(int64_t layer) const {
  int64_t slot = layer;
  for (const int64_t noop : noop_slots_) slot += noop <= slot ? 1 : 0;
  const auto after = std::upper_bound(first_slot_.begin(), first_slot_.end(), slot);
  MS_CHECK(layer >= 0 && after != first_slot_.end(), "layer ", layer, " of ", layers_before(num_slots()));
  return {place(static_cast<int>(after - first_slot_.begin()) - 1), slot - *(after - 1)};
}

}  // namespace ms::layout
