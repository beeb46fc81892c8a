#include "train/ops/ffn.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/quantize.h"
#include "train/ops/activation.h"
#include "train/ops/detail/groups.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"
#include "train/ops/grouped_matmul.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

void check_widths(const TensorView& w1, const TensorView& w2, const FfnActivation& activation) {
  MS_CHECK(w1.shape().size() == 3 && w2.shape().size() == 3 && w1.dim(0) == w2.dim(0) &&
               w1.dim(2) * packed_weights(w1.dtype()) == (activation.gated ? 2 : 1) * w2.dim(1),
           "ffn: w1 is ", core::cat(w1.shape()), ", w2 ", core::cat(w2.shape()), activation.gated ? ", gated" : "");
}

// The activation that can be fused into the product. A gated activation cannot: it combines two columns, which are too
// far apart for a register tile.
std::optional<kernels::Activation> with_product(const FfnActivation& activation) {
  return activation.gated ? std::nullopt : std::optional(activation.kind);
}

Tensor activate(Context& context, const FfnActivation& activation, const TensorView& x) {
  return activation.gated ? gated_activation(context, activation.kind, x)
                          : ops::activation(context, activation.kind, x);
}

// Values of which each group, or each of its k columns, has its own.
class OfGroups {
 public:
  OfGroups(const TensorView* values, int64_t groups, int64_t k, float otherwise, const char* what)
      : values_(values), k_(k), otherwise_(otherwise) {
    if (values == nullptr) return;
    of_columns_ = values->shape() != core::Dims{groups};
    if (of_columns_) detail::check_shape(*values, {groups, k}, what);
    detail::check_dtype(*values, core::DType::kFp32, what);
  }
  void copy(int64_t group, std::vector<float>& row) const {
    if (of_columns_) {
      std::copy_n(values_->data<float>() + group * k_, k_, row.begin());
    } else {
      std::fill(row.begin(), row.end(), values_ == nullptr ? otherwise_ : values_->data<float>()[group]);
    }
  }

 private:
  const TensorView* values_;
  int64_t k_;
  float otherwise_;
  bool of_columns_ = false;
};

// x [m, k] quantized to int8: v * scale + offset of the row's group.
Tensor quantized(Context& context, const TensorView& x, std::span<const int64_t> ends, const TensorView& scale,
                 const TensorView* offset) {
  const detail::OpScope scope(context, "ms::quantize", x);
  const int64_t k = x.dim(1), groups = static_cast<int64_t>(ends.size());
  const OfGroups scale_of(&scale, groups, k, 1, "quant_ffn: scale");
  const OfGroups offset_of(offset, groups, k, 0, "quant_ffn: offset");
  Tensor y(context.arena, core::DType::kInt8, x.shape(), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, x.size_bytes() + y.size_bytes());
  context.pool.parallel_for(x.dim(0), detail::row_grain(k), [&](int64_t begin, int64_t end) {
    std::vector<float> scales(static_cast<size_t>(k)), offsets(scales);
    int64_t filled = -1;  // the group that scale and offset are filled for
    detail::for_rows(ends, begin, end, [&](int64_t row, int64_t group) {
      if (group != filled) {
        scale_of.copy(group, scales);
        offset_of.copy(group, offsets);
        filled = group;
      }
      kernels::quantize(x.data<float>() + row * k, scales.data(), offsets.data(), k,
                        reinterpret_cast<int8_t*>(y.bytes()) + row * k);
    });
  });
  return y;
}

}  // namespace

Tensor ffn(Context& context, const TensorView& x, const TensorView& w1, const TensorView& w2,
           std::span<const int64_t> ends, const FfnActivation& activation, const TensorView* b1, const TensorView* b2) {
  check_widths(w1, w2, activation);
  Tensor wide = grouped_matmul(context, x, w1, ends, GroupedWeight::kInOut, b1, with_product(activation));
  if (activation.gated) wide = activate(context, activation, wide);
  return grouped_matmul(context, wide, w2, ends, GroupedWeight::kInOut, b2);
}

Tensor quant_ffn(Context& context, const TensorView& x, const TensorView& w1, const TensorView& w2,
                 std::span<const int64_t> ends, const FfnActivation& activation, const FfnQuantization& quantization,
                 const TensorView* b1, const TensorView* b2) {
  check_widths(w1, w2, activation);
  QuantGmmParams first, second;
  first.bias = b1, first.output_dtype = core::DType::kFp32;
  second.bias = b2, second.output_dtype = quantization.output_dtype;
  const Tensor wide = quant_gmm(context, x, w1, quantization.deq_scale1, ends, first);
  const Tensor narrow =
      quantized(context, activate(context, activation, wide), ends, quantization.scale, quantization.offset);
  return quant_gmm(context, narrow, w2, quantization.deq_scale2, ends, second);
}

Tensor weight_quant_ffn(Context& context, const TensorView& x, const TensorView& w1, const TensorView& w2,
                        std::span<const int64_t> ends, const FfnActivation& activation, const Antiquant& antiquant1,
                        const Antiquant& antiquant2, const TensorView* b1, const TensorView* b2) {
  check_widths(w1, w2, activation);
  Tensor wide = weight_quant_gmm(context, x, w1, antiquant1, ends, b1, with_product(activation));
  if (activation.gated) wide = activate(context, activation, wide);
  return weight_quant_gmm(context, wide, w2, antiquant2, ends, b2);
}

}  // namespace ms::ops
