// Which elements of a rank's buffers have their optimizer state on this rank: a range of each section that trains
// (core/layout/buffer_sections.h). The state itself has them one after the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/layout/gradient_buckets.h"
#include "train/model/parameters.h"

namespace ms::train {

class OwnedRanges {
 public:
  // distributed: with ZeRO-1 a block of each section, else all of it.
  OwnedRanges(const ParameterStore& parameters, bool distributed) {
    for (size_t section = 0; section < ranges_.size(); ++section) {
      const int rank = parameters.replicas(section).rank();
      ranges_[section] = layout::owned_range(parameters.sections()[section], rank, distributed);
    }
  }

  std::span<const layout::FlatRange> ranges() const { return ranges_; }
  const layout::FlatRange& of_section(size_t section) const { return ranges_[section]; }
  int64_t size() const { return end_of(ranges_.size()); }

  // The part of a parameter, as elements of the buffers; empty if begin >= end.
  layout::FlatRange part_of(const Parameter& parameter) const {
    if (!parameter.trains()) return {};
    const layout::FlatRange& owned = ranges_[parameter.section];
    return {std::max(owned.begin, parameter.offset_elems),
            std::min(owned.end, parameter.offset_elems + parameter.size())};
  }
  // Where the state has an owned element of the buffers.
  int64_t state_index(int64_t element) const {
    size_t section = 0;
    while (section + 1 < ranges_.size() && element >= ranges_[section].end) ++section;
    return end_of(section) + element - ranges_[section].begin;
  }

 private:
  int64_t end_of(size_t sections) const {
    int64_t sum = 0;
    for (size_t section = 0; section < sections; ++section) sum += ranges_[section].end - ranges_[section].begin;
    return sum;
  }

  std::array<layout::FlatRange, layout::kNumTrainedSections> ranges_;
};

}  // namespace ms::train
