// What has happened to a tensor that is not what it should be: compares it with all that it may have been confused
// with.
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

// A tensor of which some element is not the source's.
struct WrongTensor {
  size_t pair = 0;                                  // index into ProofReport::tensors and the expected hashes
  TensorPair tensors;                               // target, source
  int64_t differing = 0, zeros = 0, truncated = 0;  // elements; the last two of those that differ
  int64_t first_flat = std::numeric_limits<int64_t>::max();
  core::Dims first;   // place in the global tensor of the first that differs
  int32_t shard = 0;  // of the target
  double seen = 0, expected = 0;

  void add(const WrongTensor& part);
};

// The name with its layer and expert numbers left out: tensors alike in all but these should look alike.
std::string sibling_pattern(std::string_view key);

// The median root mean square of tensors that are siblings, by pattern and role; of fewer than three there is none.
using SiblingMedians = std::map<std::pair<std::string, core::TensorRole>, double>;
SiblingMedians sibling_medians(const std::vector<ProvedTensor>& tensors);

// "root mean square 3.1, while 0.02 is usual for this tensor in other layers", or nothing.
std::string odd_scale(const ProvedTensor& tensor, const SiblingMedians& medians);

// Adds a fault to the report for each of the wrong tensors, and to its summary what they have in common.
// expected_xxh3: for each tensor of the report the logical hash that its values should have.
void diagnose(Source& source, Source& target, const std::vector<WrongTensor>& wrong, ProofReport& report,
              const std::vector<uint64_t>& expected_xxh3, const ProveOptions& options);

}  // namespace ms::ckpt::detail
