// Compares two checkpoints of any format and layout: do they hold the same tensors with the same values?
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "ckpt/values.h"
#include "core/sharded_tensor.h"

namespace ms::ckpt {

struct Difference {
  std::string tensor;
  core::TensorRole role = core::TensorRole::kParam;
  std::string text;  // "only in the first", "shape [8] and [4]", "values differ: 3 of 96 elements, max abs 0.5, .."
};
std::string difference_text(const ValueDifference& values);

struct DiffOptions {
  bool weights_only = false;  // ignore optimizer state
  // Skip tensors for which both sides record the same logical hash, as native checkpoints do. Fast, but does not see
  // data that was damaged after it had been written.
  bool by_recorded_hashes = false;
  int threads = 1;
  std::function<bool()> stopped;                              // throws kIo "interrupted" when true; may be empty
  std::function<void(int64_t done, int64_t total)> progress;  // bytes of the first; one thread at a time; may be empty
};

struct DiffReport {
  std::vector<Difference> differences;  // empty: the same tensors with the same values
  int64_t compared = 0;                 // tensors whose data was read from both sides
  int64_t by_hash = 0;                  // tensors compared by their recorded hashes only
};

// ", 12 tensors by their recorded hashes only, without reading their data"; empty if there are none.
std::string recorded_hashes_text(const DiffReport& report);

// Reads both checkpoints once, compares every element and checks stored checksums on the way. Throws kCorruptData,
// naming tensor, file and bytes, if data is damaged. Memory: about 32 MiB per thread.
DiffReport diff_checkpoints(Source& a, Source& b, const DiffOptions& options = {});

}  // namespace ms::ckpt
