// What a step says about itself: one log line, and one JSON line under Megatron's names.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "core/arena.h"
#include "core/io/file.h"

namespace ms::train {

struct StepMetrics {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  int64_t iteration = 0;  // 1 for the first
  int64_t train_iters = 0;
  int64_t consumed_train_samples = 0;
  double loss = kNone;
  double grad_norm = kNone;
  double learning_rate = 0;
  double loss_scale = 1;
  bool skipped = false;      // not applied: overflow, spike, or asked for
  bool nan = false;          // loss or gradient norm not finite
  bool passed_over = false;  // asked for: nothing was computed, so there is no loss, norm or speed
  double seconds = 0;
  int64_t tokens = 0;                                      // of the global batch
  double tflops_per_rank = 0;                              // GEMMs and attention executed, TFLOP/s, mean over ranks
  double mfu = 0;                                          // of the measured or given peak
  std::array<int64_t, core::kNumMemoryTags> peak_bytes{};  // of this rank, since the last step
  int64_t total_peak_bytes = 0;
  core::ArenaUse arena;            // of this rank, in this step
  int64_t process_peak_bytes = 0;  // resident, ever; 0: unknown

  // What is not finite, and the speed of a step that is passed over, is left out of both. The text replaces what was in
  // `text`, whose room it uses: a step that is told as the last was takes nothing from the heap.
  // skipped_iterations, nan_iterations: since the line before.
  void write_line(bool report_memory, int64_t skipped_iterations, int64_t nan_iterations, std::string& text) const;
  void write_json(std::string& text) const;
};

// Appends JSON lines to a file, from rank 0. A resumed run appends.
class MetricsFile {
 public:
  MetricsFile() = default;
  explicit MetricsFile(const std::string& path);  // throws kIo
  bool is_open() const { return file_.is_open(); }
  // record: JSON. One write(2) a line: a killed run keeps its lines. Does nothing without a file. Throws kIo.
  void write(std::string_view record);

 private:
  core::File file_;
  std::string line_;
};

}  // namespace ms::train
