#include "train/loop/metrics.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ms::train {
namespace {

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string StepMetrics::line(bool report_memory, int64_t skipped_iterations, int64_t nan_iterations) const {
  std::string text =
      core::cat("iteration ", iteration, "/", train_iters, " | consumed samples: ", consumed_train_samples,
                " | elapsed time per iteration (ms): ", number("%.1f", seconds * 1e3),
                " | learning rate: ", number("%.3e", learning_rate));
  if (std::isfinite(loss)) text += " | lm loss: " + number("%.5f", loss);
  text += " | loss scale: " + number("%.1f", loss_scale);
  if (std::isfinite(grad_norm)) text += " | grad norm: " + number("%.3f", grad_norm);
  text += core::cat(" | number of skipped iterations: ", skipped_iterations,
                    " | number of nan iterations: ", nan_iterations);
  if (!passed_over) {
    text +=
        core::cat(" | tokens/s: ", number("%.0f", static_cast<double>(tokens) / seconds),
                  " | TFLOP/s/rank: ", number("%.4f", tflops_per_rank), " | MFU: ", number("%.1f", mfu * 100), " %");
  }
  text += core::cat(" | peak memory: ", number("%.1f", static_cast<double>(total_peak_bytes) / 1e6), " MB");
  if (report_memory) {
    text += " (";
    for (int tag = 0; tag < core::kNumMemoryTags; ++tag) {
      text += core::cat(tag == 0 ? "" : " ", core::memory_tag_name(static_cast<core::MemoryTag>(tag)), " ",
                        number("%.1f", static_cast<double>(peak_bytes[static_cast<size_t>(tag)]) / 1e6));
    }
    text += ")";
  }
  return text;
}

nlohmann::json StepMetrics::json() const {
  nlohmann::json memory;
  for (int tag = 0; tag < core::kNumMemoryTags; ++tag) {
    memory[std::string(core::memory_tag_name(static_cast<core::MemoryTag>(tag)))] =
        peak_bytes[static_cast<size_t>(tag)];
  }
  memory["total"] = total_peak_bytes;
  nlohmann::json record = {{"iteration", iteration},
                           {"consumed_train_samples", consumed_train_samples},
                           {"learning rate", learning_rate},
                           {"loss scale", loss_scale},
                           {"number of skipped iterations", skipped ? 1 : 0},
                           {"number of nan iterations", nan ? 1 : 0},
                           {"elapsed time per iteration (ms)", seconds * 1e3},
                           {"peak memory bytes", memory}};
  if (std::isfinite(loss)) record["lm loss"] = loss;
  if (std::isfinite(grad_norm)) record["grad norm"] = grad_norm;
  if (!passed_over) {
    record["tokens/s"] = static_cast<double>(tokens) / seconds;
    record["throughput per rank (TFLOP/s)"] = tflops_per_rank;
    record["mfu"] = mfu;
  }
  return record;
}

MetricsFile::MetricsFile(const std::string& path) {
  try {
    file_ = core::File::open_append(path);
  } catch (const core::Error& e) {
    throw core::Error(core::ErrorCode::kIo, core::cat("--metrics-path ", path, ": ", e.what()));
  }
}

void MetricsFile::write(const nlohmann::json& record) {
  if (!file_.is_open()) return;
  const std::string line = record.dump() + "\n";
  try {
    file_.append(std::as_bytes(std::span(line)));
  } catch (const core::Error& e) {
    throw e.within(core::cat("--metrics-path ", file_.path()));
  }
}

}  // namespace ms::train
