// The sections of a rank's buffers of parameters. Parameters whose gradients the same ranks add up are neighbours, so
// that a range of the buffers can be one message: first those that train, then those that do not; of both, experts'
// parameters come last if other ranks hold them than the rest (with expert parallelism).
// Source: buffers and expert_parallel_buffers of megatron/core/distributed/distributed_data_parallel.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/layout/parameter_specs.h"
#include "core/layout/process_group_table.h"
#include "core/layout/rank_grid.h"
#include "core/layout/sharding.h"

namespace ms::layout {

struct BufferSection {
  Group replicas = Group::kDpCp;  // ranks that hold the same parameters
  int num_replicas = 1;
  FlatRange range;  // of the buffers, padded to a multiple of 128 x num_replicas elements; may be empty
};

inline constexpr size_t kNumSections = 4;
inline constexpr size_t kNumTrainedSections = 2;  // the first ones, of which the first is never left out

class BufferSections {
 public:
  explicit BufferSections(const RankGrid& grid);

  // Where a parameter of `numel` elements of this rank is, if they are added in the order of the model.
  struct Place {
    size_t section = 0;
    int64_t offset = 0;  // within the section
  };
  Place add(const ParameterSpec& spec, int64_t numel, bool trains);
  // Once all are added: pads the sections and lines them up.
  std::array<BufferSection, kNumSections> finish() const;

 private:
  std::array<BufferSection, kNumSections> sections_;  // range.end: elements so far
  bool experts_apart_;
};

}  // namespace ms::layout
