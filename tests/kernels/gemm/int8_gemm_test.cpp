#include "kernels/gemm/int8_gemm.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/kernels/forced_isa.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

std::vector<int8_t> bytes(uint64_t salt, int64_t n, int32_t low = -128, int32_t high = 127) {
  std::vector<int8_t> result;
  for (const int32_t value : test::RandomValues(salt).integers(n, low, high)) {
    result.push_back(static_cast<int8_t>(value));
  }
  return result;
}

void expect_exact(int64_t m, int64_t n, int64_t k, const std::vector<int8_t>& a, const std::vector<int8_t>& b) {
  const int64_t lda = k + 3, ldb = n + 5, ldc = n + 2;
  std::vector<int32_t> c(static_cast<size_t>((m + 1) * ldc), 77);
  int8_gemm(m, n, k, a.data() + 1, lda, b.data() + 1, ldb, c.data(), ldc);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int64_t want = 0;
      for (int64_t p = 0; p < k; ++p)
        want += int64_t{a[static_cast<size_t>(1 + i * lda + p)]} * b[static_cast<size_t>(1 + p * ldb + j)];
      ASSERT_EQ(c[static_cast<size_t>(i * ldc + j)], want) << m << " x " << n << " x " << k << " at " << i << " " << j;
    }
    for (int64_t j = n; j < ldc; ++j) ASSERT_EQ(c[static_cast<size_t>(i * ldc + j)], 77) << "written beyond a row";
  }
  for (size_t i = static_cast<size_t>(m * ldc); i < c.size(); ++i) ASSERT_EQ(c[i], 77) << "written beyond C";
}

TEST(Int8Gemm, IsExactAtAwkwardSizes) {
  for (const int64_t m : {0, 1, 2, 5, 6, 7, 13}) {
    for (const int64_t n : {0, 1, 7, 31, 32, 33, 64, 65, 130}) {
      for (const int64_t k : {0, 1, 2, 3, 4, 5, 17, 64, 255}) {
        expect_exact(m, n, k, bytes(1, (m + 1) * (k + 3)), bytes(2, (k + 1) * (n + 5)));
      }
    }
  }
}

// The largest possible sums: every product 2^14, with the largest k.
TEST(Int8Gemm, IsExactAtTheLimit) {
  constexpr int64_t kK = kMaxInt8Products;
  for (const auto& [x, y] : {std::pair{-128, -128}, std::pair{-128, 127}, std::pair{127, -128}}) {
    const std::vector<int8_t> a(2 * (kK + 3), static_cast<int8_t>(x)), b((kK + 1) * 7, static_cast<int8_t>(y));
    expect_exact(1, 2, kK, a, b);
  }
}

TEST(Int8Gemm, UsesTheForcedInstructionSet) {
  const std::string forced = forced_isa();
  if (forced == "scalar" || forced == "avx2") {
    EXPECT_EQ(int8_gemm_name(), forced);
  }
#if defined(__x86_64__)
  if (forced == "avx512") {
    EXPECT_STREQ(int8_gemm_name(), __builtin_cpu_supports("avx512vnni") ? "vnni" : "avx2");
  }
#endif
}

}  // namespace
}  // namespace ms::kernels
