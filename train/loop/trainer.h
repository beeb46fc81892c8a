// A training run of one rank: from the configuration to the last checkpoint.
//
// Works on any endpoint: MPI ranks, a single rank, or thread ranks in a test. Collective: every rank of the endpoint
// constructs a Trainer and calls run().
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/source.h"
#include "core/comm/communicator.h"
#include "core/thread_pool.h"
#include "train/config.h"
#include "train/loop/metrics.h"

namespace ms::train {

// What the trainer may not link (convert, profile): wired by tools/mstrain.cpp.
struct TrainerServices {
  // Opens a checkpoint of any format: a root (newest generation), or one generation. iteration > 0: that one.
  std::function<std::unique_ptr<ckpt::Source>(const std::filesystem::path& path, int64_t iteration)> open_source;
  // Turns a closed native trace into another format beside it.
  std::function<void(const std::filesystem::path& native, const std::string& format)> convert_trace;
  // What --ckpt-writer process starts: ckpt::Saver::Options::writer_command.
  std::vector<std::string> writer_command;
  // Called as each phase begins: "config", "build", "load", "data", and of every step "forward", "optimizer" and
  // "save". For tests, which may throw there; may be empty.
  std::function<void(std::string_view phase)> at_phase;
};

struct RunSummary {
  std::vector<StepMetrics> steps;  // of this call, all iterations
  GroupCounters communication{};   // of the last of them, on this rank
  double validation_loss = -1;     // of the last evaluation; < 0: none
  double test_loss = -1;           // of the test set, at the end of the run; < 0: none
  std::string checkpoint;          // folder of the last committed checkpoint, on rank 0; empty: none
  std::string generated;           // with --generate: prompt and continuation
  int signal = 0;                  // the signal that ended the run early; 0: none
  std::string exit_reason;         // why it ended before --train-iters; empty: it did not
};

class Trainer {
 public:
  // config: as parsed; it is resolved and validated here, against the endpoint's size and the tokenizer.
  // recorder may be null (no --profile possible). Throws on all ranks together.
  Trainer(TrainerConfig config, core::Endpoint& endpoint, core::ThreadPool& pool, core::trace::Recorder* recorder,
          TrainerServices services);
  ~Trainer();

  RunSummary run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::train
