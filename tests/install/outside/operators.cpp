// Normalizes two rows: after RMSNorm with gamma 1 the mean square of a row is 1.
#include <cmath>
#include <cstdio>

#include "core/arena.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "train/ops/norm.h"

int main() {
  using ms::core::DType;
  using ms::core::MemoryTag;
  ms::core::Arena arena;
  ms::core::ThreadPool pool(2);
  ms::ops::Context context{pool, arena};

  ms::core::Tensor x(arena, DType::kFp32, {2, 3}, MemoryTag::kAct);
  ms::core::Tensor gamma(arena, DType::kFp32, {3}, MemoryTag::kParam);
  for (int i = 0; i < 6; ++i) x.data<float>()[i] = static_cast<float>(i + 1);
  for (int i = 0; i < 3; ++i) gamma.data<float>()[i] = 1;

  const ms::core::Tensor y = ms::ops::rms_norm(context, x, gamma, {.epsilon = 0.0}, nullptr);
  for (int row = 0; row < 2; ++row) {
    double squares = 0;
    for (int i = 0; i < 3; ++i) squares += y.data<float>()[row * 3 + i] * y.data<float>()[row * 3 + i];
    std::printf("operators: mean square of row %d is %.6f\n", row, squares / 3);
    if (std::abs(squares / 3 - 1) > 1e-5) return 1;
  }
  return 0;
}
