// Model FLOPs utilisation: FLOPs from the trace, else estimated from the shapes of matrix products and attention. The
// covered share of the time is reported; nothing is extrapolated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

// FLOPs of one call of an operator, by its name and Kineto's "Input Dims" (JSON text): 2mnk for a matrix product, 4 B H
// Sq Sk D for attention (forward; 2.5 times as much for its backward). Nullopt for other operators, for shapes that do
// not fit, and for convolutions, whose output is not among the arguments.
std::optional<int64_t> flops_of_operator(std::string_view name, std::string_view dims);

struct FlopsRow {
  std::string name;  // of the kernel, or of the operator with known shapes
  int64_t count = 0;
  int64_t flops = 0, bytes = -1;  // sums; bytes -1: unknown
  int64_t device_ns = 0;          // of its kernels
};

struct Mfu {
  int rank = 0;
  bool recorded = false;       // FLOPs come from the trace, not estimated
  int64_t steps = 0;           // 0: the trace has no steps, and counts as one
  int64_t step_ns = 0;         // mean; without steps, the span of device time
  int64_t flops = 0;           // in all steps
  int64_t computing_ns = 0;    // durations of computing kernels
  int64_t covered_ns = 0;      // of those whose FLOPs are known
  int64_t unread_shapes = 0;   // calls of operators whose "Input Dims" are not lists of sizes
  std::vector<FlopsRow> rows;  // by FLOPs, descending

  // FLOP/s over the time of the steps.
  double flops_per_second() const;
};
// Nullopt for a rank without device events. O(n log n).
std::optional<Mfu> mfu(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
