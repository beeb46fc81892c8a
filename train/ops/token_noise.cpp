#include "train/ops/token_noise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "kernels/philox.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::TensorView;

// In (0, 1).
double uniform_of(uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1.0p-32; }

// Calls visit(token, first column, four words), for every four columns.
template <class Visit>
void for_words(Context& context, const TensorView& x, const TokenNoise& noise, const Visit& visit) {
  const auto batch = static_cast<int64_t>(noise.samples.size());
  MS_CHECK(batch > 0 && x.dim(0) % batch == 0, "noise: ", x.dim(0), " tokens of ", batch, " samples");
  context.pool.parallel_for(x.dim(0), detail::row_grain(8 * x.dim(1)), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const auto sample = static_cast<uint64_t>(noise.samples[static_cast<size_t>(token % batch)]);
      const auto position = static_cast<uint32_t>(noise.first_position + token / batch);
      for (int64_t column = 0; column < x.dim(1); column += 4) {
        visit(token, column,
              kernels::philox4x32_10({static_cast<uint32_t>(column / 4), position, static_cast<uint32_t>(sample),
                                      static_cast<uint32_t>(sample >> 32)},
                                     {static_cast<uint32_t>(noise.key), static_cast<uint32_t>(noise.key >> 32)}));
      }
    }
  });
}

}  // namespace

void jitter_inplace(Context& context, const TensorView& x, double eps, const TokenNoise& noise) {
  const detail::OpScope scope(context, "ms::jitter", x);
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  const int64_t n = x.dim(1);
  detail::with_type(x.dtype(), [&]<class T>() {
    for_words(context, x, noise, [&](int64_t token, int64_t first, const std::array<uint32_t, 4>& words) {
      T* const row = x.data<T>() + token * n;
      for (int64_t column = first; column < std::min(first + 4, n); ++column) {
        const double factor = 1 + eps * (2 * uniform_of(words[static_cast<size_t>(column - first)]) - 1);
        row[column] = T(static_cast<float>(static_cast<float>(row[column]) * factor));
      }
    });
  });
}

void fill_normal(Context& context, const TensorView& x, const TokenNoise& noise) {
  const detail::OpScope scope(context, "ms::fill_normal", x);
  detail::check_dtype(x, core::DType::kFp32, "noise: x");
  const auto kernel = scope.kernel(-1, x.size_bytes());
  const int64_t n = x.dim(1);
  for_words(context, x, noise, [&](int64_t token, int64_t first, const std::array<uint32_t, 4>& words) {
    for (size_t i = 0; i < 4; ++i) {  // Box-Muller: two numbers of two words
      const size_t pair = i / 2 * 2;
      const double radius = std::sqrt(-2 * std::log(uniform_of(words[pair])));
      const double angle = 2 * std::numbers::pi * uniform_of(words[pair + 1]);
      const int64_t column = first + static_cast<int64_t>(i);
      if (column >= n) continue;
      x.data<float>()[token * n + column] =
          static_cast<float>(radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
    }
  });
}

void fill_uniform(Context& context, const TensorView& x, const TokenNoise& noise) {
  const detail::OpScope scope(context, "ms::fill_uniform", x);
  detail::check_dtype(x, core::DType::kFp32, "noise: x");
  const auto kernel = scope.kernel(-1, x.size_bytes());
  constexpr float kBelowOne = 0x1.fffffep-1F;
  const int64_t n = x.dim(1);
  for_words(context, x, noise, [&](int64_t token, int64_t first, const std::array<uint32_t, 4>& words) {
    for (int64_t column = first; column < std::min(first + 4, n); ++column) {
      const auto value = static_cast<float>(uniform_of(words[static_cast<size_t>(column - first)]));
      x.data<float>()[token * n + column] = std::min(value, kBelowOne);
    }
  });
}

}  // namespace ms::ops
