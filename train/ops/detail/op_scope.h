// What every operator records: a cpu_op span with its inputs (--profile-with-cpu), and a kernel span around the work,
// which is also reported to the context's observer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "core/trace/span.h"
#include "train/ops/context.h"

namespace ms::ops::detail {

class OpScope {
 public:
  // The work; it ends when this goes out of scope.
  class Kernel {
   public:
    Kernel(const OpScope& scope, int64_t flops, int64_t bytes)
        : scope_(scope),
          flops_(flops),
          bytes_(bytes),
          start_ns_(scope.observer_ != nullptr ? core::trace::now_ns() : 0),
          span_(scope.recorder_, core::trace::Category::kKernel, scope.kernel_name(), flops, bytes) {}
    ~Kernel() {
      if (scope_.observer_ == nullptr) return;
      scope_.observer_->on_operator(scope_.kernel_name(), scope_.inputs_, flops_, bytes_,
                                    core::trace::now_ns() - start_ns_);
    }
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

   private:
    const OpScope& scope_;
    int64_t flops_, bytes_, start_ns_;
    core::trace::Span span_;
  };

  // name: a literal "ms::<operator>"; its kernel span carries the part after "ms::".
  // inputs: recorded with record_shapes; must live as long as the scope.
  template <class... Views>
  OpScope(const Context& context, std::string_view name, const Views&... inputs)
      : recorder_(context.recorder),
        observer_(context.observer),
        name_(name),
        op_(recorder_if_with_cpu(), core::trace::Category::kCpuOp, name) {
    if (observer_ != nullptr) inputs_ = {inputs.shape()...};
    if (!op_.wants_shapes()) return;
    if constexpr (sizeof...(inputs) > 0) {
      const std::array<core::DType, sizeof...(inputs)> types = {inputs.dtype()...};
      op_.set_inputs({inputs.shape()...}, core::dtype_name(types[0]));
    }
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  // flops: -1 when not counted; bytes: read and written.
  Kernel kernel(int64_t flops, int64_t bytes) const { return {*this, flops, bytes}; }

 private:
  std::string_view kernel_name() const { return name_.substr(4); }
  core::trace::Recorder* recorder_if_with_cpu() const {
    return recorder_ != nullptr && recorder_->active() && recorder_->options().with_cpu ? recorder_ : nullptr;
  }

  core::trace::Recorder* recorder_;  // may be null
  OperatorObserver* observer_;       // may be null
  std::string_view name_;
  std::vector<core::Dims> inputs_;  // for the observer
  core::trace::Span op_;
};

}  // namespace ms::ops::detail
