// The numbers of a step, written as one JSON line per step under Megatron's names, and as one log line per interval of
// steps.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/io/file.h"
#include "train/data/deal.h"
#include "train/loop/expert_load.h"
#include "train/loop/group_counters.h"
#include "train/memory/swap_tier.h"

namespace ms::train {

struct StepMetrics {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  int64_t iteration = 0;  // 1 for the first
  int64_t train_iters = 0;
  int64_t consumed_train_samples = 0;
  int64_t global_batch_size = 0;  // of this step
  double loss = kNone;
  std::vector<double> mtp_losses;  // of each layer of multi-token prediction
  double grad_norm = kNone;
  double params_norm = kNone;  // --log-params-norm: after the step
  double num_zeros = kNone;    // --log-num-zeros-in-grad: elements of the gradient that are 0
  double learning_rate = 0;
  std::optional<double> decoupled_learning_rate;  // --decoupled-lr: of word embeddings and output layer
  double loss_scale = 1;
  bool skipped = false;      // not applied: overflow, spike, or asked for
  bool nan = false;          // loss or gradient norm not finite
  bool passed_over = false;  // asked for: nothing was computed, so there is no loss, norm or speed
  double seconds = 0;
  int64_t tokens = 0;                   // of the global batch
  double tflops_per_rank = 0;           // what the model needs (core/layout/formulas/flops.h), TFLOP/s, mean over ranks
  double hardware_tflops_per_rank = 0;  // GEMMs and attention executed, recomputation among them
  double mfu = 0, hfu = 0;              // the two as shares of the roofline
  std::array<int64_t, core::kNumMemoryTags> peak_bytes{};  // of this rank, since the last step
  int64_t total_peak_bytes = 0;
  int64_t executed_flops = 0;      // of this rank
  core::ArenaUse arena;            // of this rank, in this step
  int64_t process_peak_bytes = 0;  // resident, ever; 0: unknown
  std::optional<TierUse> tier;     // --swap-attention: of this rank, in this step
  std::optional<DealtCost> dealt;  // --hybrid-context-parallel: in FLOPs that the model needs
  ExpertLoads experts;             // of all ranks, in this step

  // What is not finite, and the speed of a step that is passed over, is left out. communication: this rank's. Replaces
  // what was in `text`, whose room it uses: a step that is written as the last was takes nothing from the heap.
  void write_json(const GroupCounters& communication, std::string& text) const;
};

// The log line: the steps since the line before, as Megatron's training_log has them (megatron/training/training.py).
// The loss is the mean of the applied steps; time, tokens/s and FLOP/s are those of all steps together; peak memory is
// the largest of them. Learning rate, loss scale, gradient norm and the arena are the last step's.
class LogInterval {
 public:
  void add(const StepMetrics& step);
  // Replaces what was in `text`, as StepMetrics::write_json. After at least one add().
  void write_line(bool report_memory, std::string& text) const;
  void clear() { *this = {}; }
  const ExpertLoads& experts() const { return experts_; }

 private:
  StepMetrics last_;  // with the peaks of all
  int64_t steps_ = 0, applied_ = 0, skipped_ = 0, nan_ = 0, tokens_ = 0;
  double loss_sum_ = 0;                // of applied steps
  std::vector<double> mtp_loss_sums_;  // the same
  double seconds_ = 0;
  double tflop_per_rank_ = 0;
  double mfu_seconds_ = 0, hfu_seconds_ = 0;  // MFU x seconds, HFU x seconds
  ExpertLoads experts_;                       // of all steps
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

// The peaks of the next step begin.
void reset_peaks(core::Arena& arena, core::Arena& messages, SwapTier* tier);
// The step's peaks of memory: arena's, what messages takes besides, and the process's.
void take_peaks(StepMetrics& metrics, const core::Arena& arena, const core::Arena& messages);

}  // namespace ms::train
