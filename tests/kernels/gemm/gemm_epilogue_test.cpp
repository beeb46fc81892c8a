// Tests GemmEpilogue of kernels/gemm/gemm.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/gemm/gemm.h"
#include "tests/kernels/forced_isa.h"
#include "tests/reference/activation.h"
#include "tests/reference/matmul.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

using reference::roundoff;

template <class T>
constexpr GemmType type_of() {
  if (sizeof(T) == 4) return GemmType::kFp32;
  return std::is_same_v<T, bf16> ? GemmType::kBf16 : GemmType::kFp16;
}

// Operands, bias and residual; C has rows of n + 3, the residual rows of n + 5.
template <class T>
struct Case {
  Case(int64_t rows, int64_t columns, int64_t terms)
      : m(rows), n(columns), k(terms), random(static_cast<uint64_t>(m * 31 + n + k)) {}

  GemmProblem problem(std::vector<T>& c, bool biased, std::optional<Activation> activation, bool adds) const {
    GemmProblem p;
    p.transpose_b = true;
    p.m = m, p.n = n, p.k = k;
    p.a = a.data(), p.lda = k, p.b = b.data(), p.ldb = k;
    p.c = c.data(), p.ldc = n + 3;
    p.a_type = p.b_type = p.c_type = type_of<T>();
    if (biased) p.epilogue.bias = bias.data();
    p.epilogue.activation = activation;
    if (adds) p.epilogue.residual = residual.data(), p.epilogue.ld_residual = n + 5;
    return p;
  }

  int64_t m, n, k;
  test::RandomValues random;
  std::vector<T> a = random.make<T>(m * k), b = random.make<T>(n * k), bias = random.make<T>(n),
                 residual = random.make<T>(m * (n + 5));
};

constexpr Activation kActivations[] = {Activation::kSilu,     Activation::kGelu, Activation::kGeluTanh,
                                       Activation::kFastGelu, Activation::kRelu, Activation::kSquaredRelu};

template <class T>
void check(int64_t m, int64_t n, int64_t k) {
  const Case<T> given(m, n, k);
  const auto product =
      reference::matmul(reference::to_double(given.a), false, reference::to_double(given.b), true, m, n, k);
  std::vector<std::optional<Activation>> activations(std::begin(kActivations), std::end(kActivations));
  activations.emplace_back();
  for (const auto& activation : activations) {
    for (int flags = 0; flags < 4; ++flags) {
      const bool biased = (flags & 1) != 0, adds = (flags & 2) != 0;
      for (const auto* implementation : gemm_implementations()) {
        std::vector<T> c(static_cast<size_t>(m * (n + 3)), T(77.0F));
        const GemmProblem problem = given.problem(c, biased, activation, adds);
        if (!implementation->declines(problem).empty()) continue;
        implementation->run(problem);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n + 3; ++j) {
            const double seen = to_float(c[static_cast<size_t>(i * (n + 3) + j)]);
            const std::string where = std::string(implementation->name) + " k " + std::to_string(k) + " flags " +
                                      std::to_string(flags) + " at " + std::to_string(i) + ", " + std::to_string(j);
            if (j >= n) {
              ASSERT_EQ(seen, 77) << where;
              continue;
            }
            const auto at = static_cast<size_t>(i * n + j);
            const double beside = biased ? to_float(given.bias[static_cast<size_t>(j)]) : 0;
            const double argument = product.value[at] + beside;
            const double value = activation ? reference::activation(*activation, argument) : argument;
            const double added = adds ? to_float(given.residual[static_cast<size_t>(i * (n + 5) + j)]) : 0;
            // No activation's derivative but that of kSquaredRelu exceeds 1.13; each is within 2e-6 of its definition,
            // relative or absolute near 0.
            const double twice =
                implementation->name == "onednn_bf16" ? roundoff<T>() * std::abs(product.value[at]) : 0;
            const double before =
                static_cast<double>(k + 3) * roundoff<float>() * (product.magnitude[at] + std::abs(beside)) + twice;
            const double slope = activation == Activation::kSquaredRelu ? 2 * std::abs(argument) + before : 1.13;
            const double bound = slope * before + 2e-6 * (std::abs(value) + 1) +
                                 2 * roundoff<T>() * (std::abs(value + added)) +
                                 roundoff<float>() * (std::abs(value) + std::abs(added));
            ASSERT_NEAR(seen, value + added, bound) << where;
          }
        }
      }
    }
  }
}

// One and several blocks of k, whole tiles and edges, few and many rows.
TEST(GemmEpilogue, EveryImplementationAgreesWithTheDefinition) {
  const int64_t sizes[][3] = {{1, 1, 1}, {13, 33, 7}, {24, 64, 801}, {19, 70, 401}, {70, 40, 9}};
  for (const auto& [m, n, k] : sizes) {
    check<float>(m, n, k);
    check<bf16>(m, n, k);
    check<fp16>(m, n, k);
  }
}

template <class T>
void expect_no_bit_of_a_split() {
  constexpr int64_t kM = 100, kN = 171, kK = 801;
  const Case<T> given(kM, kN, kK);
  std::vector<T> whole(kM * (kN + 3)), parts = whole;
  GemmProblem problem = given.problem(whole, true, Activation::kGelu, true);
  problem.deterministic = true;
  gemm(problem);
  for (int64_t i = 0; i < kM; i += 30) {
    for (int64_t j = 0; j < kN; j += 50) {
      GemmProblem part = problem;
      part.m = std::min<int64_t>(30, kM - i), part.n = std::min<int64_t>(50, kN - j);
      part.a = given.a.data() + i * kK, part.b = given.b.data() + j * kK;
      part.epilogue.bias = given.bias.data() + j;
      part.epilogue.residual = given.residual.data() + i * (kN + 5) + j;
      part.c = parts.data() + i * (kN + 3) + j;
      gemm(part);
    }
  }
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(to_float(whole[i]), to_float(parts[i])) << i;
}

TEST(GemmEpilogue, SplittingCChangesNoBit) {
  expect_no_bit_of_a_split<float>();
  expect_no_bit_of_a_split<bf16>();
}

TEST(GemmEpilogue, ZeroKAppliesItAndAccumulationThrows) {
  const std::vector<float> bias = {1, -2}, residual = {10, 20, 30, 40};
  std::vector<float> c(4, 7.0F);
  GemmProblem problem;
  problem.m = 2, problem.n = 2, problem.c = c.data(), problem.ldc = 2;
  problem.epilogue.bias = bias.data();
  problem.epilogue.activation = Activation::kRelu;
  problem.epilogue.residual = residual.data(), problem.epilogue.ld_residual = 2;
  gemm(problem);
  EXPECT_EQ(c, (std::vector<float>{11, 20, 31, 40}));
  problem.accumulate = true;
  EXPECT_THROW(gemm(problem), std::invalid_argument);
}

}  // namespace
}  // namespace ms::kernels
