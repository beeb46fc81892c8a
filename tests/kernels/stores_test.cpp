#include "kernels/stores.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "kernels/activation.h"
#include "kernels/convert.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "kernels/rows.h"
#include "tests/kernels/forced_isa.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

template <class T>
class StoresOf : public ::testing::Test {};
using Types = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(StoresOf, Types);

// Room for n elements, the first 64-byte aligned or one element after that.
template <class T>
struct Target {
  std::vector<T> memory;
  T* data;
  Target(int64_t n, int64_t off) : memory(static_cast<size_t>(n) + 256 / sizeof(T), T(7.0F)) {
    data = memory.data();
    while (reinterpret_cast<uintptr_t>(data) % 64 != 0) ++data;
    data += off;
  }
};

// Both kinds of stores give the same bits and write nothing beyond: whole rows, rows with a tail, unaligned rows.
TYPED_TEST(StoresOf, NonTemporalGivesTheSameBits) {
  using T = TypeParam;
  for (const int64_t h : {1, 15, 16, 17, 64, 127, 768}) {
    for (const int64_t off : {0, 1}) {
      const int64_t rows = 3, n = rows * h;
      test::RandomValues random(static_cast<uint64_t>(h));
      const auto x = random.make<T>(2 * n), dy = random.make<T>(n), gamma = random.make<T>(h);
      const auto wide = random.make(n);
      std::vector<float> mean(3, 0.1F), rstd(3, 1.5F), sums(static_cast<size_t>(2 * h));
      const T* terms[] = {x.data(), dy.data()};
      const std::function<void(T*, Stores)> kernels[] = {
          [&](T* y, Stores stores) { add(x.data(), dy.data(), n, y, stores); },
          [&](T* y, Stores stores) { activation(Activation::kSilu, x.data(), n, y, stores); },
          [&](T* y, Stores stores) { activation_backward(Activation::kGeluTanh, dy.data(), x.data(), n, y, stores); },
          [&](T* y, Stores stores) { gated_activation(Activation::kSilu, x.data(), rows, h, y, stores); },
          [&](T* y, Stores stores) {
            gated_activation_backward(Activation::kSilu, dy.data(), x.data(), rows, h, y, stores);
          },
          [&](T* y, Stores stores) { rms_norm(x.data(), gamma.data(), 0.0F, rows, h, 1e-5F, y, nullptr, stores); },
          [&](T* y, Stores stores) {
            rms_norm_backward(dy.data(), x.data(), gamma.data(), 1.0F, rstd.data(), x.data(), rows, h, y, sums.data(),
                              stores);
          },
          [&](T* y, Stores stores) {
            layer_norm(x.data(), gamma.data(), 0.0F, gamma.data(), rows, h, 1e-5F, y, nullptr, nullptr, stores);
          },
          [&](T* y, Stores stores) {
            layer_norm_backward(dy.data(), x.data(), gamma.data(), 0.0F, mean.data(), rstd.data(), x.data(), rows, h, y,
                                sums.data(), sums.data() + h, stores);
          },
          [&](T* y, Stores stores) { weighted_row_sum(terms, mean.data(), 2, n, y, stores); },
          [&](T* y, Stores stores) { weighted_row_sum_backward(dy.data(), x.data(), 0.3F, n, y, stores); },
          [&](T* y, Stores stores) { copy_row(x.data(), n * static_cast<int64_t>(sizeof(T)), y, stores); },
          [&](T* y, Stores stores) {
            if constexpr (!std::is_same_v<T, float>) convert(wide.data(), y, n, stores);
          },
      };
      int which = 0;
      for (const auto& kernel : kernels) {
        Target<T> cached(2 * n, off), past(2 * n, off);
        kernel(cached.data, Stores::kCached);
        kernel(past.data, Stores::kNonTemporal);
        EXPECT_EQ(std::memcmp(cached.data, past.data, static_cast<size_t>(2 * n + 1) * sizeof(T)), 0)
            << "kernel " << which << " h " << h << " off " << off;
        ++which;
      }
      if constexpr (!std::is_same_v<T, float>) {
        Target<float> cached(n, off), past(n, off);
        convert(x.data(), cached.data, n);
        convert(x.data(), past.data, n, Stores::kNonTemporal);
        EXPECT_EQ(std::memcmp(cached.data, past.data, static_cast<size_t>(n + 1) * sizeof(float)), 0) << h;
      }
    }
  }
}

}  // namespace
}  // namespace ms::kernels
