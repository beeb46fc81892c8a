// RAII spans over recorder.h. A null or inactive recorder costs one branch.
#pragma once

#include "core/trace/recorder.h"

namespace ms::core::trace {

class Span {
 public:
  // name must live until the destructor (a literal, or a string of the caller).
  Span(Recorder* recorder, Category category, std::string_view name, int64_t flops = -1, int64_t bytes = -1)
      : recorder_(recorder != nullptr && recorder->active() ? recorder : nullptr),
        category_(category),
        name_(name),
        flops_(flops),
        bytes_(bytes),
        start_ns_(recorder_ != nullptr ? now_ns() : 0) {}
  ~Span() {
    if (recorder_ != nullptr) recorder_->span(category_, name_, start_ns_, now_ns(), flops_, bytes_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  void set_bytes(int64_t bytes) { bytes_ = bytes; }

 private:
  Recorder* recorder_;
  Category category_;
  std::string_view name_;
  int64_t flops_, bytes_;
  int64_t start_ns_;
};

}  // namespace ms::core::trace
