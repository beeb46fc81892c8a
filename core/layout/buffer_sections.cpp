#include "core/layout/buffer_sections.h"

#include <utility>

namespace ms::layout {

BufferSections::BufferSections(const RankGrid& grid) : experts_apart_(experts_apart(grid)) {
  for (size_t section = 0; section < kNumSections; ++section) {
    const bool of_experts = section % 2 == 1;
    sections_[section].replicas = of_experts ? group_of_expert_replicas(grid) : Group::kDpCp;
    sections_[section].num_replicas = of_experts && experts_apart_ ? grid.expert_dp() : grid.dp * grid.cp;
  }
}

BufferSections::Place BufferSections::add(const ParameterSpec& spec, int64_t numel, bool trains) {
  const size_t section = (trains ? 0 : kNumTrainedSections) + (spec.expert >= 0 && experts_apart_ ? 1 : 0);
  int64_t& end = sections_[section].range.end;
  return {section, std::exchange(end, end + aligned_size(numel))};
}

std::array<BufferSection, kNumSections> BufferSections::finish() const {
  std::array<BufferSection, kNumSections> sections = sections_;
  int64_t begin = 0;
  for (BufferSection& section : sections) {
    const int64_t size = buffer_size(section.range.end, section.num_replicas);
    section.range = {begin, begin + size};
    begin += size;
  }
  return sections;
}

}  // namespace ms::layout
