#include "train/loop/reporter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/comm/agree.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/log.h"
#include "train/loop/step_events.h"

namespace ms::train {

using core::cat;

void Reporter::find_roofline(core::Communicator& world) {
  const double given = config_.logger.peak_tflops;
  const core::DType dtype = config_.params_dtype();
  if (given > 0) {
    roofline_ = Roofline(given, /*measured=*/false);
    core::log_info("train.roofline", cat(given, " TFLOP/s per rank (--peak-tflops)"));
    return;
  }
  std::array<double, 1> sum{};
  core::collectively(world, "measure the roofline", [&] { sum[0] = measure_gemm_tflops(ops_, dtype); });
  if (world.size() > 1) world.allreduce(sum);
  roofline_ = Roofline(sum[0] / world.size(), /*measured=*/true);
  core::log_info("train.roofline",
                 cat(roofline_.tflops(), " TFLOP/s per rank: ", core::dtype_name(dtype),
                     " GEMM of 1024 x 1024 x 1024, ", ops_.pool.num_threads(), " threads, mean over ranks"));
}

void Reporter::measure_roofline_again(core::Communicator& world) {
  std::array<double, 1> sum{};
  core::collectively(world, "measure the roofline", [&] {
    sum[0] = measure_gemm_tflops(ops_, config_.params_dtype(), /*min_rounds=*/2, /*seconds=*/0);
  });
  if (world.size() > 1) world.allreduce(sum);
  const double tflops = sum[0] / world.size();
  core::log_debug("train.roofline", cat("measured again: ", tflops, " TFLOP/s per rank"));
  if (const std::string news = roofline_.measured_again(tflops); !news.empty()) {
    core::log_warning("train.roofline", news);
  }
}

void Reporter::open_files(core::Communicator& world) {
  core::collectively(world, "metrics", [&] {
    const LoggerConfig& logger = config_.logger;
    if (world.rank() == 0 && !logger.metrics_path.empty()) metrics_ = MetricsFile(logger.metrics_path);
    if (world.rank() == 0 && !logger.tensorboard_dir.empty())
      events_ = EventWriter(logger.tensorboard_dir, logger.tensorboard_queue_size);
  });
}

void Reporter::batch_size(const StepMetrics& step) {
  const int64_t before = std::exchange(last_batch_size_, step.global_batch_size);
  if (before == step.global_batch_size || before == 0) return;
  core::log_info("train.step", cat("iteration ", step.iteration, ": ramping up batch size from ", before, " to ",
                                   step.global_batch_size));
}

void Reporter::rate(StepMetrics& step) {
  if (const std::string news = roofline_.reached(step.hardware_tflops_per_rank); !news.empty()) {
    core::log_warning("train.roofline", news);
  }
  step.mfu = step.tflops_per_rank / roofline_.tflops();
  step.hfu = step.hardware_tflops_per_rank / roofline_.tflops();
}

void Reporter::step(core::Communicator& world, const StepMetrics& step, const GroupCounters& communication,
                    int64_t skipped_train_samples, StepTimers& timers) {
  if (metrics_.is_open()) {
    step.write_json(communication, text_);
    metrics_.write(text_);
  }
  if (step.iteration % config_.logger.tensorboard_log_interval == 0) {
    RunFacts run{world.size(), skipped_train_samples};
    for (int tag = 0; tag < core::kNumMemoryTags; ++tag) {
      run.allocated_bytes += arena_.current_bytes(static_cast<core::MemoryTag>(tag));
    }
    write_step_events(events_, config_, step, run);
  }
  interval_.add(step);
  interval_.write_line(false, text_);
  core::log_progress(text_);
  if (step.iteration % config_.logger.log_interval != 0 && step.iteration != step.train_iters) return;
  interval_.write_line(config_.logger.report_memory, text_);
  core::log_info("train.step", text_);
  if (const std::string uneven = hot_and_dead_experts(interval_.experts()); !uneven.empty())
    core::log_info("train.experts", uneven);
  interval_.clear();
  if (roofline_.is_measured_after(++lines_)) measure_roofline_again(world);
  if (const int64_t level = config_.logger.timing_log_level; level > 0) {
    core::log_info("train.step", timers.take_line(world, level));
  }
  if (config_.logger.log_straggler) {
    core::log_info("train.straggler", stragglers_.take_line(world, config_.logger.straggler_minmax_count));
  }
}

void Reporter::evaluation(const std::string& set, double loss, int64_t iteration, int64_t consumed_samples) {
  core::log_info("train.eval", cat("validation loss at iteration ", iteration, set == "test" ? " on test set" : "",
                                   " | lm loss value: ", loss, " | lm loss PPL: ", std::exp(loss)));
  const std::string tag = "lm loss " + set, ppl_tag = tag + " ppl";
  const nlohmann::json record = {{"iteration", iteration}, {tag, loss}, {ppl_tag, std::exp(loss)}};
  metrics_.write(record.dump());
  events_.add_scalar(tag, loss, iteration, consumed_samples);
  if (config_.logger.log_validation_ppl_to_tensorboard) {
    events_.add_scalar(ppl_tag, std::exp(std::min(20.0, loss)), iteration, consumed_samples);
  }
}

}  // namespace ms::train
