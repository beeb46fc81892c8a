// Sums over rows whose result does not depend on the number of threads.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "kernels/elementwise.h"
#include "train/ops/context.h"
#include "train/ops/detail/typed.h"

namespace ms::ops::detail {

// Adds to `sums` (each fp32 [h]), first over blocks of rows, then over blocks; the order is the same for any number of
// threads.
// work(first_row, rows, partials): adds the part of a block, to partials[0, h) for the first sum, [h, 2h) for the
// second, ..
template <class Work>
void sum_over_rows(Context& context, int64_t rows, int64_t h, std::initializer_list<const core::TensorView*> sums,
                   const Work& work) {
  const int64_t block_rows = std::max<int64_t>(64, (rows + 31) / 32), blocks = (rows + block_rows - 1) / block_rows;
  const auto width = static_cast<int64_t>(sums.size()) * h;
  const core::Tensor partial = core::Tensor::zeros(context.arena, core::DType::kFp32,
                                                   {std::max<int64_t>(blocks, 1), width}, core::MemoryTag::kTmp);
  context.pool.parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * block_rows;
      work(first, std::min(block_rows, rows - first), partial.data<float>() + block * width);
    }
  });
  int64_t offset = 0;
  for (const core::TensorView* sum : sums) {
    for (int64_t block = 0; block < blocks; ++block) {
      kernels::accumulate(sum->data<float>(), partial.data<float>() + block * width + offset, h);
    }
    offset += h;
  }
}

}  // namespace ms::ops::detail
