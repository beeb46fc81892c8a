// Where the virtual stages of a pipeline are. A micro-batch visits stages x chunks places, each with some layers of the
// model; position k is the k-th place that its forward visits.
//
// Round-robin: position k is chunk k / stages of stage k % stages (interleaved schedules; Narayanan et al. 2021,
// megatron/core/pipeline_parallel/schedules.py). V: every second chunk runs through the stages backwards, so that the
// last place is on the first stage (ZB-V, DualPipeV; Qi et al. 2024, "Pipeline Parallelism with Controllable Memory").
#pragma once

#include <cstdint>
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

  // layers: their number at each position, stages x chunks entries.
  Placement(int stages, int chunks, Order order, const std::vector<int64_t>& layers);
  // num_layers must be a multiple of stages x chunks.
  static Placement even(int stages, int chunks, int64_t num_layers, Order order = Order::kRoundRobin);

  int stages() const { return stages_; }
  int chunks() const { return chunks_; }
  int positions() const { return stages_ * chunks_; }
  Place place(int position) const;
  int position(Place place) const;
  bool is_first(Place place) const { return position(place) == 0; }               // has the embedding
  bool is_last(Place place) const { return position(place) == positions() - 1; }  // has the loss
  LayerRange layers(Place place) const;

 private:
  bool runs_backwards(int chunk) const { return order_ == Order::kV && chunk % 2 == 1; }

  int stages_, chunks_;
  Order order_;
  std::vector<int64_t> first_layer_;  // at each position, and the number of all layers
};

}  // namespace ms::layout
