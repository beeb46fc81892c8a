// Adds up the time of each operator of a rank's training steps: an observer of train/ops that is notified of every
// call.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/ops/context.h"

namespace ms::train {

// Calls of one operator on inputs of one shape.
struct OperatorRow {
  std::string name;                // as in a trace: "linear_wgrad"
  std::vector<core::Dims> inputs;  // empty where the operator takes flat ranges (adamw)
  int64_t calls = 0;               // of one step
  int64_t flops = 0;               // of one step; 0: not counted, memory bounds it
  int64_t bytes = 0;               // of one step: read and written
  double seconds = 0;              // of one step: the median over the steps
};

class OperatorTimes final : public ops::OperatorObserver {
 public:
  void begin_step() { ++steps_; }
  void on_operator(std::string_view name, const std::vector<core::Dims>& inputs, int64_t flops, int64_t bytes,
                   int64_t dur_ns) override;
  // In the order of their first calls. All steps must have made the same calls.
  std::vector<OperatorRow> rows() const;

 private:
  struct Sums {
    OperatorRow all;                    // calls, flops and bytes of all steps
    std::vector<int64_t> ns_of_step{};  // [steps]
  };
  size_t steps_ = 0;
  std::map<std::pair<std::string, std::vector<core::Dims>>, size_t> index_;
  std::vector<Sums> sums_;
};

double median(std::vector<double> values);  // not empty

}  // namespace ms::train
