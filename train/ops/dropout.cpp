#include "train/ops/dropout.h"

#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {

void dropout_inplace(Context& context, const core::TensorView& x, const Dropout& dropout, int64_t first_position,
                     std::span<const int64_t> samples) {
  const detail::OpScope scope(context, "ms::dropout", x);
  MS_CHECK(x.shape().size() == 3, "dropout: x is ", core::cat(x.shape()), ", expected [seq, batch, h]");
  const int64_t seq = x.dim(0), batch = x.dim(1), h = x.dim(2);
  MS_CHECK(static_cast<int64_t>(samples.size()) == batch, "dropout: ", samples.size(), " samples for a batch of ",
           batch);
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(seq * batch, detail::row_grain(h), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        kernels::dropout_row(dropout, samples[static_cast<size_t>(row % batch)], first_position + row / batch, 0, h,
                             x.data<T>() + row * h);
      }
    });
  });
}

}  // namespace ms::ops
