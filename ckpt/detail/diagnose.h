// Diagnoses a wrong tensor: compares it with everything that it may have been confused with.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/detail/paired_reading.h"
#include "ckpt/prove.h"

namespace ms::ckpt::detail {

// A tensor with elements that differ from the source's.
struct WrongTensor {
  size_t pair = 0;                                  // index into ProofReport::tensors and the expected hashes
  TensorPair tensors;                               // target, source
  int64_t differing = 0, zeros = 0, truncated = 0;  // elements; zeros and truncated count those that differ
  int64_t first_flat = std::numeric_limits<int64_t>::max();
  core::Dims first;   // index in the global tensor of the first element that differs
  int32_t shard = 0;  // of the target: holds that element
  double seen = 0, expected = 0;

  void add(const WrongTensor& part);
};

// The name without its layer and expert numbers: tensors that differ only in these should have similar statistics.
std::string sibling_pattern(std::string_view key);

// The median root mean square of sibling tensors, by pattern and role; none for fewer than three siblings.
using SiblingMedians = std::map<std::pair<std::string, core::TensorRole>, double>;
SiblingMedians sibling_medians(const std::vector<ProvedTensor>& tensors);

// "root mean square 3.1, while 0.02 is usual for this tensor in other layers", or empty.
std::string odd_scale(const ProvedTensor& tensor, const SiblingMedians& medians);

// Adds a fault to the report for each wrong tensor, and to its summary what several faults have in common.
// expected_xxh3: for each tensor of the report, the logical hash that its values should have.
void diagnose(Source& source, Source& target, const std::vector<WrongTensor>& wrong, ProofReport& report,
              const std::vector<uint64_t>& expected_xxh3, const ProveOptions& options);

}  // namespace ms::ckpt::detail
