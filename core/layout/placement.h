// Where the virtual stages of a pipeline are. A micro-batch visits stages x chunks places, each with some layers of the
// model; position k is the k-th place that its forward visits.
//
// A place has slots, and a slot holds a layer or nothing (a no-op layer of MindSpeed's --noop-layers, which evens out
// stages that have the embedding or the loss). Slots and layers are counted in the order of the positions.
//
// Round-robin: position k is chunk k / stages of stage k % stages (interleaved schedules; Narayanan et al. 2021,
// megatron/core/pipeline_parallel/schedules.py). V: every second chunk runs through the stages backwards, so that the
// last place is on the first stage (ZB-V, DualPipeV; Qi et al. 2024, "Pipeline Parallelism with Controllable Memory").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ms::layout {

struct Place {
  int stage = 0;
  int chunk = 0;  // of the stage
  bool operator==(const Place&) const = default;
};

// Global layers [first, first + count).
struct LayerRange {
  int64_t first = 0, count = 0;
};

class Placement {
 public:
  enum class Order : uint8_t { kRoundRobin, kV };

  // slots: their number at each position, stages x chunks entries. noop_slots: those without a layer, ascending.
  Placement(int stages, int chunks, Order order, const std::vector<int64_t>& slots,
            std::vector<int64_t> noop_slots = {});
  // num_slots must be a multiple of stages x chunks.
  static Placement even(int stages, int chunks, int64_t num_slots, Order order = Order::kRoundRobin,
                        std::vector<int64_t> noop_slots = {});

  int stages() const { return stages_; }
  int chunks() const { return chunks_; }
  Order order() const { return order_; }
  int positions() const { return stages_ * chunks_; }
  Place place(int position) const;
  int position(Place place) const;
  bool is_first(Place place) const { return position(place) == 0; }               // has the embedding
  bool is_last(Place place) const { return position(place) == positions() - 1; }  // has the loss
  LayerRange layers(Place place) const;
  // The places that a micro-batch's forward visits before and after this one; nullopt: none.
  std::optional<Place> before(Place place) const;
  std::optional<Place> behind(Place place) const;

  int64_t num_slots() const { return first_slot_.back(); }
  // The layer in each slot of a place; nullopt: none.
  std::vector<std::optional<int64_t>> slots(Place place) const;
  struct Slot {
    Place place;
    int64_t index = 0;  // within the place
  };
  Slot slot_of(int64_t layer) const;

 private:
  bool runs_backwards(int chunk) const { return order_ == Order::kV && chunk % 2 == 1; }
  // Layers in the slots before this one.
  int64_t layers_before(int64_t slot) const;

  int stages_, chunks_;
  Order order_;
  std::vector<int64_t> first_slot_;  // of each position, and the number of all slots
  std::vector<int64_t> noop_slots_;
};

}  // namespace ms::layout
