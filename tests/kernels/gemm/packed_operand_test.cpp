#include "kernels/gemm/packed_operand.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "tests/kernels/forced_isa.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

template <class T>
constexpr GemmType type_of() {
  if (sizeof(T) == 4) return GemmType::kFp32;
  return std::is_same_v<T, bf16> ? GemmType::kBf16 : GemmType::kFp16;
}

std::string_view reader_of(PackedFormat format) {
  if (format == PackedFormat::kAmx) return "amx";
  return format == PackedFormat::kBf16Pairs ? "bf16_dot" : "packed";
}

// Packs in the shares of two threads; misaligned if stored as [n, k].
template <class T>
std::vector<float> packed(PackedFormat format, const GemmProblem& problem) {
  std::vector<float> words(static_cast<size_t>(packed_words(format, problem.n, problem.k)));
  const int64_t strips = packed_strips(problem.n), half = strips / 2;
  pack_operand(format, problem, half, strips, words.data());
  pack_operand(format, problem, 0, half, words.data());
  return words;
}

template <class T, class C>
void expect_same_bits() {
  const int64_t sizes[][3] = {{1, 1, 1}, {7, 33, 19}, {40, 97, 64}, {13, 32, 401}, {30, 2051, 801}, {100, 400, 1601}};
  for (const auto& [m, n, k] : sizes) {
    for (const bool transpose_b : {false, true}) {
      test::RandomValues random(static_cast<uint64_t>(n));
      const auto a = random.make<T>(m * k), b = random.make<T>(n * k + 1);
      std::vector<C> plain(static_cast<size_t>(m * n)), fast = plain, parts = plain;
      GemmProblem problem;
      problem.transpose_b = transpose_b, problem.deterministic = true;
      problem.m = m, problem.n = n, problem.k = k;
      problem.a = a.data(), problem.a_type = type_of<T>(), problem.lda = k;
      problem.b = b.data() + transpose_b, problem.b_type = type_of<T>(), problem.ldb = transpose_b ? k : n;
      problem.c = plain.data(), problem.c_type = type_of<C>(), problem.ldc = n;
      gemm(problem);

      const auto format = packed_format(type_of<T>(), /*deterministic=*/true);
      ASSERT_EQ(format.has_value(), active_isa() != Isa::kScalar);
      if (!format) return;
      const std::vector<float> words = packed<T>(*format, problem);
      const PackedOperand operand{*format, n, k, words.data()};
      problem.packed_b = &operand;
      problem.b = nullptr;  // not read
      EXPECT_EQ(choose_gemm(problem).name, reader_of(*format));
      problem.c = fast.data();
      gemm(problem);
      for (int64_t column = 0; column < n; column += 96) {
        GemmProblem part = problem;
        part.n = std::min<int64_t>(96, n - column);
        part.packed_column = column;
        part.c = parts.data() + column;
        gemm(part);
      }
      for (size_t i = 0; i < plain.size(); ++i) {
        ASSERT_EQ(to_float(fast[i]), to_float(plain[i])) << n << " x " << k << " at " << i;
        ASSERT_EQ(to_float(parts[i]), to_float(plain[i])) << n << " x " << k << " at " << i << ", in parts";
      }
    }
  }
}

TEST(PackedOperand, GivesTheSameBitsAsThePlainOperand) {
  expect_same_bits<float, float>();
  expect_same_bits<bf16, float>();
  expect_same_bits<bf16, bf16>();
  expect_same_bits<fp16, fp16>();
}

// For another format, or a part that begins within a strip, the plain operand is used.
TEST(PackedOperand, UnreadableFormatFallsBackToThePlainOperand) {
  constexpr int64_t kM = 20, kN = 70, kK = 33;
  test::RandomValues random;
  const auto a = random.make(kM * kK), b = random.make(kN * kK);
  std::vector<float> want(kM * kN), seen(kM * kN);
  GemmProblem problem;
  problem.m = kM, problem.n = kN, problem.k = kK;
  problem.a = a.data(), problem.lda = kK, problem.b = b.data(), problem.ldb = kN;
  problem.c = want.data(), problem.ldc = kN;
  gemm(problem);
  const PackedOperand of_pairs{PackedFormat::kBf16Pairs, kN, kK, nullptr};
  const PackedOperand of_amx{PackedFormat::kAmx, kN, kK, nullptr};
  const PackedOperand of_fp32{PackedFormat::kFp32, kN + 1, kK, nullptr};
  for (const auto* implementation : gemm_implementations()) {
    for (const PackedOperand* operand : {&of_pairs, &of_amx, &of_fp32}) {
      problem.packed_b = operand;
      problem.packed_column = operand == &of_fp32 ? 1 : 0;
      problem.c = seen.data();
      if (!implementation->declines(problem).empty()) continue;
      std::fill(seen.begin(), seen.end(), 0.0F);
      implementation->run(problem);
      for (size_t i = 0; i < seen.size(); ++i) ASSERT_NEAR(seen[i], want[i], 1e-4) << implementation->name << " " << i;
    }
  }
}

}  // namespace
}  // namespace ms::kernels
