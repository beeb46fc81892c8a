// Do two checkpoints hold the same tensors with the same values, whatever their formats and layouts?
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
  bool weights_only = false;  // optimizer state is not looked at
  // Do not read tensors for which both sides record the same logical hash, as checkpoints of ours do. Fast, and blind
  // to data that was damaged after it had been written.
  bool by_recorded_hashes = false;
  int threads = 1;
  std::function<bool()> stopped;                              // throws kIo "interrupted" when true; may be empty
  std::function<void(int64_t done, int64_t total)> progress;  // bytes of the first; one thread at a time; may be empty
};

struct DiffReport {
  std::vector<Difference> differences;  // empty: the same tensors with the same values
  int64_t compared = 0;                 // tensors whose data of both sides was read
  int64_t by_hash = 0;                  // tensors of which only recorded hashes were compared
};

// ", 12 tensors by their recorded hashes only, without reading their data", or nothing.
std::string recorded_hashes_text(const DiffReport& report);

// Reads both checkpoints once and compares every element, checking stored checksums on the way. Throws kCorruptData,
// naming tensor, file and bytes, where data is damaged. Memory: about 32 MiB a thread.
DiffReport diff_checkpoints(Source& a, Source& b, const DiffOptions& options = {});

}  // namespace ms::ckpt
