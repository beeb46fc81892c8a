// The chunks in which --swap-optimizer moves the optimizer's state of a rank between memory and tier: neighbouring
// elements, as many in each but the last, in whole blocks of the tier's file (core/io/scratch_file.h).
#pragma once

#include <cstdint>

#include "core/layout/sharding.h"
#include "core/layout/swap_plan.h"

namespace ms::layout {

class StateChunks {
 public:
  // In memory during an update: the one that is updated, the next, which is being read, and the one before, which is
  // being written.
  static constexpr int64_t kAtOnce = 3;

  StateChunks() = default;
  // elements: whose state the rank has. times: chunks, above 0; fewer if these are shorter than a block.
  StateChunks(int64_t elements, int64_t times);

  int64_t count() const { return count_; }
  FlatRange operator[](int64_t chunk) const;
  // Of each state, elements that have memory during an update, and where a chunk's first one is among them.
  int64_t elements_in_memory() const;
  int64_t place_in_memory(int64_t chunk) const { return chunk % kAtOnce * chunk_elems_; }
  // What a step reads from the tier, and writes to it, for so many fp32 numbers of each element.
  SwappedBytes moved(int64_t num_states) const;

 private:
  int64_t elements_ = 0, chunk_elems_ = 0, count_ = 0;
};

}  // namespace ms::layout
