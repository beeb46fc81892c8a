#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/bf16.h"
#include "kernels/roofline.h"
#include "tests/kernels/forced_isa.h"
#include "tests/reference/matmul.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::roundoff;

template <class T>
constexpr GemmType type_of() {
  return sizeof(T) == 2 ? GemmType::kBf16 : GemmType::kFp32;
}

struct Case {
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
};

std::string describe(const Case& c, std::string_view name) {
  return std::string(name) + " m " + std::to_string(c.m) + " n " + std::to_string(c.n) + " k " + std::to_string(c.k) +
         (c.transpose_a ? " At" : " A") + (c.transpose_b ? " Bt" : " B") + (c.accumulate ? " +=" : " =");
}

// Runs every implementation that takes the problem, with C in rows of n, or of n + 3 whose last 3 must not be written
// (oneDNN has separate kernels for these); with accumulation, operands are misaligned by one element.
template <class A, class B, class C>
void check(const Case& c) {
  test::RandomValues random(static_cast<uint64_t>(c.m * 7919 + c.n * 31 + c.k));
  auto a = random.make<A>(c.m * c.k);
  auto b = random.make<B>(c.k * c.n);
  const int64_t ldc = c.m % 2 == 0 ? c.n : c.n + 3;
  const auto start = random.make<C>(c.m * ldc);
  const auto expected =
      reference::matmul(reference::to_double(a), c.transpose_a, reference::to_double(b), c.transpose_b, c.m, c.n, c.k);
  const int64_t shift = c.accumulate ? 1 : 0;
  a.insert(a.begin(), static_cast<size_t>(shift), A());
  b.insert(b.begin(), static_cast<size_t>(shift), B());
  for (const auto* implementation : gemm_implementations()) {
    auto result = start;
    GemmProblem problem;
    problem.transpose_a = c.transpose_a, problem.transpose_b = c.transpose_b;
    problem.m = c.m, problem.n = c.n, problem.k = c.k;
    problem.a = a.data() + shift, problem.a_type = type_of<A>(), problem.lda = c.transpose_a ? c.m : c.k;
    problem.b = b.data() + shift, problem.b_type = type_of<B>(), problem.ldb = c.transpose_b ? c.k : c.n;
    problem.c = result.data(), problem.c_type = type_of<C>(), problem.ldc = ldc;
    problem.accumulate = c.accumulate;
    if (!implementation->declines(problem).empty()) continue;
    implementation->run(problem);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < ldc; ++j) {
        const auto at = static_cast<size_t>(i * ldc + j);
        const double before = to_float(start[at]), seen = to_float(result[at]);
        if (j >= c.n) {
          ASSERT_EQ(seen, before) << describe(c, implementation->name) << ": wrote beyond row " << i;
          continue;
        }
        const auto dense = static_cast<size_t>(i * c.n + j);
        const double want = expected.value[dense] + (c.accumulate ? before : 0.0);
        // k products and k sums, each rounded once; then the rounding of the result.
        const double bound = static_cast<double>(c.k + 2) * roundoff<float>() * expected.magnitude[dense] +
                             2 * roundoff<C>() * (std::abs(want) + std::abs(before));
        ASSERT_NEAR(seen, want, bound) << describe(c, implementation->name) << " at " << i << ", " << j;
      }
    }
  }
}

TEST(Gemm, EveryImplementationAgreesWithTheDefinition) {
  const int64_t sizes[][3] = {{1, 1, 1},   {5, 15, 7},   {6, 16, 8},    {7, 17, 9},    {12, 32, 64},  {13, 33, 31},
                              {1, 97, 41}, {97, 1, 300}, {101, 53, 19}, {96, 64, 257}, {19, 2051, 5}, {1601, 3, 5},
                              {17, 1, 1},  {32, 40, 49}, {64, 33, 401}, {24, 70, 900}};
  for (const auto& s : sizes) {
    for (int flags = 0; flags < 8; ++flags) {
      const Case c{s[0], s[1], s[2], (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0};
      check<float, float, float>(c);
      check<bf16, bf16, float>(c);
      check<float, bf16, float>(c);
      check<bf16, float, float>(c);
      if (c.accumulate) continue;
      check<bf16, bf16, bf16>(c);
      check<float, bf16, bf16>(c);
    }
  }
}

// Sums of a 16-bit C over several blocks of k, and over more columns and rows than are accumulated at once.
TEST(Gemm, SixteenBitResultsWithLargeK) {
  check<bf16, bf16, bf16>({13, 1999, 801, false, true, false});
  check<bf16, bf16, bf16>({17, 2080, 4133, false, false, false});
  check<bf16, bf16, bf16>({530, 40, 70, true, true, false});
  check<float, bf16, bf16>({13, 1999, 401, false, false, false});
}

const GemmImplementation* named(std::string_view name) {
  const auto list = gemm_implementations();
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto* one) { return one->name == name; });
  return found == list.end() ? nullptr : *found;
}

// Zero padding (edges and an odd last element of k) must not be multiplied with an infinite operand.
template <class T>
void expect_infinities_stay_in_their_rows() {
  constexpr int64_t kM = 31, kN = 37, kK = 29;
  for (int flags = 0; flags < 4; ++flags) {
    const bool transpose_a = (flags & 1) != 0, transpose_b = (flags & 2) != 0;
    std::vector<T> a(kM * kK, T(0.5F)), b(kN * kK, T(2.0F));
    const auto a_at = [&](int64_t i, int64_t p) { return static_cast<size_t>(transpose_a ? p * kM + i : i * kK + p); };
    a[a_at(3, 28)] = T(std::numeric_limits<float>::infinity());
    a[a_at(30, 0)] = T(-std::numeric_limits<float>::infinity());
    a[a_at(14, 7)] = T(std::numeric_limits<float>::quiet_NaN());
    b[static_cast<size_t>(transpose_b ? 36 * kK + 28 : 28 * kN + 36)] = T(std::numeric_limits<float>::quiet_NaN());
    for (const auto* implementation : gemm_implementations()) {
      std::vector<float> c(kM * kN);
      GemmProblem problem;
      problem.transpose_a = transpose_a, problem.transpose_b = transpose_b;
      problem.m = kM, problem.n = kN, problem.k = kK;
      problem.a = a.data(), problem.a_type = type_of<T>(), problem.lda = transpose_a ? kM : kK;
      problem.b = b.data(), problem.b_type = type_of<T>(), problem.ldb = transpose_b ? kK : kN;
      problem.c = c.data(), problem.ldc = kN;
      if (!implementation->declines(problem).empty()) continue;
      implementation->run(problem);
      for (int64_t i = 0; i < kM; ++i) {
        for (int64_t j = 0; j < kN; ++j) {
          const float seen = c[static_cast<size_t>(i * kN + j)];
          if (i == 14 || j == 36) {
            ASSERT_TRUE(std::isnan(seen)) << implementation->name << " at " << i << ", " << j;
          } else {
            const float infinity = std::numeric_limits<float>::infinity();
            ASSERT_EQ(seen, i == 3    ? infinity
                            : i == 30 ? -infinity
                                      : 29.0F)
                << implementation->name << " at " << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST(Gemm, InfinitiesAndNaNsStayInTheirRows) {
  expect_infinities_stay_in_their_rows<float>();
  expect_infinities_stay_in_their_rows<bf16>();
}

// Denormal operands and sums may be flushed to 0, but nothing else.
TEST(Gemm, OnlyDenormalNumbersMayBeFlushed) {
  constexpr int64_t kM = 14, kN = 35, kK = 65;
  constexpr float kLeast = std::numeric_limits<float>::min();
  test::RandomValues random;
  auto a = random.make<bf16>(kM * kK, 1e-18F), b = random.make<bf16>(kN * kK, 1e-18F);  // products about kLeast
  for (size_t i = 0; i < a.size(); i += 3) a[i] = bf16(kLeast / 7);
  reference::Array flushed = reference::to_double(a);
  for (double& v : flushed) v = std::abs(v) < kLeast ? std::abs(v) : 0;
  const auto want = reference::matmul(reference::to_double(a), false, reference::to_double(b), true, kM, kN, kK);
  const auto lost = reference::matmul(flushed, false, reference::to_double(b), true, kM, kN, kK);
  for (const auto* implementation : gemm_implementations()) {
    std::vector<float> c(kM * kN);
    GemmProblem problem;
    problem.transpose_b = true;
    problem.m = kM, problem.n = kN, problem.k = kK;
    problem.a = a.data(), problem.a_type = GemmType::kBf16, problem.lda = kK;
    problem.b = b.data(), problem.b_type = GemmType::kBf16, problem.ldb = kK;
    problem.c = c.data(), problem.ldc = kN;
    if (!implementation->declines(problem).empty()) continue;
    implementation->run(problem);
    for (size_t i = 0; i < c.size(); ++i) {
      const double bound = (kK + 2) * (roundoff<float>() * want.magnitude[i] + kLeast) + lost.magnitude[i];
      ASSERT_NEAR(c[i], want.value[i], bound) << implementation->name << " at " << i;
    }
  }
}

TEST(Gemm, AmxAndDotProductsTakeBf16WhereTheyAreFaster) {
  GemmProblem problem;
  problem.m = problem.n = problem.k = 100;
  problem.a_type = problem.b_type = GemmType::kBf16;
  problem.deterministic = true;
  const bool amx = active_isa() == Isa::kAmx;
  EXPECT_EQ(choose_gemm(problem).name == "bf16_dot", !amx && bf16_dot_products_are_faster());
  EXPECT_EQ(choose_gemm(problem).name == "amx", amx);
  if (active_isa() < Isa::kAvx512Bf16) {
    EXPECT_FALSE(bf16_dot_products_are_faster());
  }
  problem.b_type = GemmType::kFp32;
  EXPECT_EQ(named("bf16_dot")->declines(problem), "bf16 operands only");
}

TEST(Gemm, ZeroKGivesZerosOrKeepsC) {
  std::vector<float> c = {1, 2, 3, 4};
  GemmProblem problem;
  problem.m = 2, problem.n = 2, problem.k = 0, problem.c = c.data(), problem.ldc = 2;
  problem.accumulate = true;
  gemm(problem);
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 4}));
  problem.accumulate = false;
  gemm(problem);
  EXPECT_EQ(c, (std::vector<float>{0, 0, 0, 0}));
  problem.m = 0;
  problem.c = nullptr;
  gemm(problem);
}

TEST(Gemm, RefusesAccumulationInBf16) {
  GemmProblem problem;
  problem.c_type = GemmType::kBf16;
  problem.accumulate = true;
  EXPECT_THROW(gemm(problem), std::invalid_argument);
}

TEST(Gemm, LastImplementationTakesEveryProblem) {
  const auto list = gemm_implementations();
  GemmProblem odd;
  odd.a_type = GemmType::kBf16;
  EXPECT_EQ(list.back()->name, "naive");
  EXPECT_TRUE(list.back()->declines(odd).empty());
  // Vector code is chosen if there is any, for every type.
  const bool vectors = active_isa() != Isa::kScalar;
  EXPECT_EQ(choose_gemm(odd).name, vectors ? "packed" : "eigen");
  odd.deterministic = true;
  EXPECT_EQ(choose_gemm(odd).name, vectors ? "packed" : "naive");
  const bool has_onednn = std::any_of(list.begin(), list.end(), [](const auto* one) { return one->name == "onednn"; });
  if (!vectors || !has_onednn) return;
  GemmProblem fp32;
  fp32.m = 7;
  EXPECT_EQ(choose_gemm(fp32).name, "onednn");
  fp32.deterministic = true;
  EXPECT_EQ(choose_gemm(fp32).name, "packed");
  fp32.m = 65;  // skinny takes most from 8 to 64
  for (const bool deterministic : {false, true}) {
    fp32.deterministic = deterministic;
    EXPECT_EQ(choose_gemm(fp32).name, "packed");
  }
}

TEST(Gemm, FewRowsUseSkinny) {
  for (const bool transpose_b : {false, true}) {
    const int64_t fewest = transpose_b ? 16 : 8;
    for (const int64_t m : {fewest - 1, fewest, int64_t{64}, int64_t{65}}) {
      GemmProblem problem;
      problem.transpose_b = transpose_b;
      problem.m = m, problem.n = 100, problem.k = 100, problem.deterministic = true;
      const bool skinny = m >= fewest && m <= 64 && active_isa() != Isa::kScalar;
      EXPECT_EQ(choose_gemm(problem).name == "skinny", skinny) << m;
    }
  }
}

// Bits must not depend on which of the two implementations a split selects.
template <class T>
void expect_skinny_equals_packed() {
  for (const int64_t m : {8, 16, 17, 31, 32, 64}) {
    for (int flags = 0; flags < 8; ++flags) {
      const int64_t n = 107, k = 803;  // three blocks of k
      test::RandomValues random(static_cast<uint64_t>(m));
      const auto a = random.make<T>(m * k), b = random.make<T>(n * k);
      std::vector<float> skinny = random.make(m * n), packed = skinny;
      GemmProblem problem;
      problem.transpose_a = (flags & 1) != 0, problem.transpose_b = (flags & 2) != 0;
      problem.accumulate = (flags & 4) != 0;
      problem.m = m, problem.n = n, problem.k = k;
      problem.a = a.data(), problem.a_type = type_of<T>(), problem.lda = problem.transpose_a ? m : k;
      problem.b = b.data(), problem.b_type = type_of<T>(), problem.ldb = problem.transpose_b ? k : n;
      problem.c = skinny.data(), problem.ldc = n;
      if (!named("skinny")->declines(problem).empty()) continue;
      named("skinny")->run(problem);
      problem.c = packed.data();
      named("packed")->run(problem);
      EXPECT_EQ(skinny, packed) << m << " rows, flags " << flags;
    }
  }
}

TEST(Gemm, SkinnyGivesTheSameBitsAsPacked) {
  expect_skinny_equals_packed<float>();
  expect_skinny_equals_packed<bf16>();
}

// Results that do not depend on the thread count rely on this.
template <class T, class C>
void expect_no_bit_of_a_split() {
  constexpr int64_t kM = 131, kN = 2100, kK = 1021;
  test::RandomValues random;
  const auto a = random.make<T>(kM * kK), b = random.make<T>(kN * kK);
  std::vector<C> whole(kM * kN), parts(kM * kN);
  GemmProblem problem;
  problem.transpose_b = true;
  problem.m = kM, problem.n = kN, problem.k = kK;
  problem.a = a.data(), problem.a_type = type_of<T>(), problem.lda = kK;
  problem.b = b.data(), problem.b_type = type_of<T>(), problem.ldb = kK;
  problem.c = whole.data(), problem.c_type = type_of<C>(), problem.ldc = kN;
  problem.deterministic = true;
  gemm(problem);
  for (int64_t i = 0; i < kM; i += 50) {
    for (int64_t j = 0; j < kN; j += 701) {
      GemmProblem part = problem;
      part.m = std::min<int64_t>(50, kM - i);
      part.n = std::min<int64_t>(701, kN - j);
      part.a = a.data() + i * kK;
      part.b = b.data() + j * kK;
      part.c = parts.data() + i * kN + j;
      gemm(part);
    }
  }
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(to_float(whole[i]), to_float(parts[i])) << i;
}

TEST(Gemm, SplittingCChangesNoBit) {
  expect_no_bit_of_a_split<float, float>();
  expect_no_bit_of_a_split<bf16, float>();
  expect_no_bit_of_a_split<bf16, bf16>();
}

}  // namespace
}  // namespace ms::kernels
