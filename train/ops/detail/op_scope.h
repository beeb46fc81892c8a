// What every operator records: one cpu_op span with its inputs (--profile-with-cpu) and a kernel span around the work.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "core/trace/span.h"
#include "train/ops/context.h"

namespace ms::ops::detail {

class OpScope {
 public:
  // name: a literal "ms::<operator>"; its kernel span carries the part after "ms::".
  // inputs: recorded with record_shapes; must live as long as the scope.
  template <class... Views>
  OpScope(const Context& context, std::string_view name, const Views&... inputs)
      : recorder_(context.recorder), name_(name), op_(recorder_if_with_cpu(), core::trace::Category::kCpuOp, name) {
    if (!op_.wants_shapes()) return;
    if constexpr (sizeof...(inputs) > 0) {
      const std::array<core::DType, sizeof...(inputs)> types = {inputs.dtype()...};
      op_.set_inputs({inputs.shape()...}, core::dtype_name(types[0]));
    }
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  // Spans the work until it goes out of scope. flops: -1 when not counted; bytes: read and written.
  core::trace::Span kernel(int64_t flops, int64_t bytes) const {
    return {recorder_, core::trace::Category::kKernel, name_.substr(4), flops, bytes};
  }

 private:
  core::trace::Recorder* recorder_if_with_cpu() const {
    return recorder_ != nullptr && recorder_->active() && recorder_->options().with_cpu ? recorder_ : nullptr;
  }

  core::trace::Recorder* recorder_;  // may be null
  std::string_view name_;
  core::trace::Span op_;
};

}  // namespace ms::ops::detail
