// An operator context with a given number of threads, and conversions between vectors and tensors.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/tensor.h"
#include "tests/reference/array.h"
#include "tests/support/random_values.h"
#include "train/ops/context.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {

struct Ops {
  explicit Ops(int num_threads = 1) : pool(num_threads), context{pool, arena} {}

  template <class T>
  core::Tensor tensor(const std::vector<T>& values, core::Dims shape) {
    core::Tensor result(arena, core::dtype_of<T>(), std::move(shape), core::MemoryTag::kTmp);
    std::copy(values.begin(), values.end(), result.data<T>());
    return result;
  }
  // Uniform in [-scale, scale]; the same salt gives the same values.
  template <class T>
  core::Tensor random(core::Dims shape, uint64_t salt, float scale = 1.0F) {
    const int64_t n = core::num_elements(shape);
    return tensor(test::RandomValues(salt).make<T>(n, scale), std::move(shape));
  }
  core::Tensor zeros(core::Dims shape) {
    return core::Tensor::zeros(arena, core::DType::kFp32, std::move(shape), core::MemoryTag::kGrad);
  }

  core::ThreadPool pool;
  core::Arena arena;
  Context context;
};

template <class T>
std::vector<T> values(const core::TensorView& x) {
  const auto elements = x.elements<T>();
  return {elements.begin(), elements.end()};
}

// Any float type as double.
inline reference::Array array(const core::TensorView& x) {
  return detail::with_type(x.dtype(), [&]<class T>() { return reference::to_double(values<T>(x)); });
}

inline void expect_near(const core::TensorView& seen, const reference::Array& want, double absolute, double relative,
                        const char* what) {
  const reference::Array got = array(seen);
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], absolute + relative * std::abs(want[i])) << what << " at " << i;
  }
}

inline bool same_bytes(const core::TensorView& a, const core::TensorView& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::equal(a.bytes(), a.bytes() + a.size_bytes(), b.bytes());
}

using StorageTypes = ::testing::Types<float, kernels::bf16, kernels::fp16>;

}  // namespace ms::ops
