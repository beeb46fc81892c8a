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
      : recorder_(context.recorder != nullptr && context.recorder->active() ? context.recorder : nullptr), name_(name) {
    if (recorder_ == nullptr || !recorder_->options().with_cpu) return;
    start_ns_ = core::trace::now_ns();
    if (!recorder_->options().record_shapes) return;
    (shapes_.push_back(inputs.shape()), ...);
    if constexpr (sizeof...(inputs) > 0) {
      const std::array<core::DType, sizeof...(inputs)> types = {inputs.dtype()...};
      dtype_ = core::dtype_name(types[0]);
    }
  }
  ~OpScope() {
    if (start_ns_ == 0) return;
    recorder_->span(core::trace::Category::kCpuOp, name_, start_ns_, core::trace::now_ns(), -1, -1,
                    shapes_.empty() ? nullptr : &shapes_, dtype_);
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  // Spans the work until it goes out of scope. flops: -1 when not counted; bytes: read and written.
  core::trace::Span kernel(int64_t flops, int64_t bytes) const {
    return {recorder_, core::trace::Category::kKernel, name_.substr(4), flops, bytes};
  }

 private:
  core::trace::Recorder* recorder_;
  std::string_view name_;
  int64_t start_ns_ = 0;
  std::vector<core::Dims> shapes_;
  std::string_view dtype_;
};

}  // namespace ms::ops::detail
