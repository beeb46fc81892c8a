// How much of the machine's peak is used (traces.md 12): FLOPs as the trace carries them, else estimated from the
// shapes of matrix products and attention. What is covered is said; nothing is extrapolated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

// FLOPs of one call of an operator by its name and the "Input Dims" that Kineto writes, as JSON text: 2mnk of a
// product, 4 B H Sq Sk D of attention (forward; 2.5 times that of its backward). Nothing for other operators, and for
// shapes that do not fit; convolutions too, since their output is not among the arguments.
std::optional<int64_t> flops_of_operator(std::string_view name, std::string_view dims);

struct FlopsRow {
  std::string name;  // of the kernel, or of the operator whose shapes told
  int64_t count = 0;
  int64_t flops = 0, bytes = -1;  // sums; bytes -1: unknown
  int64_t device_ns = 0;          // of the kernels that did it
};

struct Mfu {
  int rank = 0;
  bool recorded = false;       // FLOPs are the trace's own, not estimated
  int64_t steps = 0;           // 0: none in the trace, which counts as one then
  int64_t step_ns = 0;         // mean; of the span of device time without steps
  int64_t flops = 0;           // of all steps
  int64_t computing_ns = 0;    // durations of the kernels that compute
  int64_t covered_ns = 0;      // of those whose FLOPs are known
  int64_t unread_shapes = 0;   // calls of operators whose "Input Dims" are no lists of sizes
  std::vector<FlopsRow> rows;  // most FLOPs first

  // FLOP/s while a step lasts.
  double flops_per_second() const;
};
// Nothing for a rank without device events. O(n log n).
std::optional<Mfu> mfu(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
