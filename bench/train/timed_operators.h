// Operators that take the same time in every call: what communication is hidden beside them then depends on the order
// of what a rank does, not on a machine whose speed changes.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "bench/median.h"
#include "core/trace/recorder.h"
#include "kernels/progress.h"
#include "train/ops/context.h"

namespace ms::bench {

// What operators are counted in: FLOPs, or bytes where these are not counted.
inline double work_of(int64_t flops, int64_t bytes) { return static_cast<double>(flops > 0 ? flops : bytes); }

// Nanoseconds for a unit of work, by operator.
using OperatorPace = std::map<std::string, double, std::less<>>;

// Measures the pace of what runs.
class PaceObserver : public ops::OperatorObserver {
 public:
  void on_operator(std::string_view name, const std::vector<core::Dims>& /*inputs*/, int64_t flops, int64_t bytes,
                   int64_t dur_ns) override {
    const double work = work_of(flops, bytes);
    if (work > 0) calls_[std::string(name)].push_back(static_cast<double>(dur_ns) / work);
  }
  // Raises `pace` to `slack` times the median of the calls.
  void raise(OperatorPace& pace, double slack) const {
    for (const auto& [name, all] : calls_) pace[name] = std::max(pace[name], slack * median(all));
  }

 private:
  std::map<std::string, std::vector<double>> calls_;
};

// Makes every operator last as long as its pace says, and products and attention advance messages meanwhile, as they do
// between their panels.
class TimedOperators : public ops::OperatorObserver {
 public:
  explicit TimedOperators(const OperatorPace& pace) : pace_(pace) {}
  void on_operator(std::string_view name, const std::vector<core::Dims>& inputs, int64_t flops, int64_t bytes,
                   int64_t dur_ns) final {
    const int64_t begin = core::trace::now_ns() - dur_ns;
    const auto found = pace_.find(name);
    const auto planned = found == pace_.end() ? 0 : static_cast<int64_t>(found->second * work_of(flops, bytes));
    late_ns_ += std::max<int64_t>(0, dur_ns - planned);
    while (core::trace::now_ns() < begin + planned) {
      if (flops > 0) kernels::poll_progress();
    }
    on_timed(name, inputs, std::max(dur_ns, planned));
  }
  // By which operators took longer than they should, because the machine was slower than while it was measured.
  int64_t late_ns() const { return late_ns_; }

 private:
  virtual void on_timed(std::string_view name, const std::vector<core::Dims>& inputs, int64_t dur_ns) = 0;
  const OperatorPace& pace_;
  int64_t late_ns_ = 0;
};

}  // namespace ms::bench
