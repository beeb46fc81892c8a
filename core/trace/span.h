// RAII spans for recorder.h. With a null or inactive recorder they cost one branch.
//
//   trace::Span op(recorder, trace::Category::kCpuOp, "rms_norm");
//   if (op.wants_shapes()) op.set_inputs({x.dims(), weight.dims()}, "bf16");
//   { trace::Span kernel(recorder, trace::Category::kKernel, "rms_norm_forward", flops, bytes); ... }
//
// Spans of a thread nest: with --profile-with-stack each event stores the names of the spans open around it.
#pragma once

#include <utility>

#include "core/trace/recorder.h"

namespace ms::core::trace {

class Span {
 public:
  // name must stay valid until the destructor runs (a literal, or a string of the caller).
  Span(Recorder* recorder, Category category, std::string_view name, int64_t flops = -1, int64_t bytes = -1)
      : recorder_(recorder != nullptr && recorder->active() ? recorder : nullptr),
        category_(category),
        name_(name),
        flops_(flops),
        bytes_(bytes) {
    if (recorder_ != nullptr) start_ = recorder_->open(category_, name_, launch_);
  }
  ~Span() {
    if (recorder_ == nullptr) return;
    recorder_->close(category_, name_, launch_, start_, flops_, bytes_, shapes_.empty() ? nullptr : &shapes_, dtype_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  void set_bytes(int64_t bytes) { bytes_ = bytes; }
  void set_flops(int64_t flops) { flops_ = flops; }

  // Check before collecting shapes: they are kept with --profile-record-shapes only.
  bool wants_shapes() const { return recorder_ != nullptr && recorder_->options().record_shapes; }
  // dtype must stay valid until the destructor runs.
  void set_inputs(std::vector<Dims> shapes, std::string_view dtype) {
    shapes_ = std::move(shapes);
    dtype_ = dtype;
  }

 private:
  Recorder* recorder_;
  Category category_;
  std::string_view name_, dtype_;
  int64_t flops_, bytes_;
  int64_t launch_ = -1, start_ = 0;  // ticks
  std::vector<Dims> shapes_;
};

}  // namespace ms::core::trace
