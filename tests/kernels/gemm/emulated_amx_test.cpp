// The "amx" implementation of gemm.h on CPUs without AMX. On a CPU with AMX, gemm_test.cpp runs the real one.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/gemm/detail/gemm_backends.h"
#include "kernels/gemm/detail/gemm_scratch.h"
#include "kernels/gemm/packed_operand.h"
#include "kernels/progress.h"
#include "tests/reference/matmul.h"
#include "tests/support/random_values.h"

#define MS_KERNEL_BODY "tests/kernels/gemm/emulated_amx.inl"
#include "kernels/impl/avx512_bf16.h"

namespace ms::kernels {
namespace {

#if defined(__x86_64__)
struct Case {
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
};

template <class C>
class EmulatedAmx {
 public:
  explicit EmulatedAmx(const Case& c) : case_(c) {
    test::RandomValues random(static_cast<uint64_t>(c.m * 7919 + c.n * 31 + c.k));
    a_ = random.make<bf16>(c.m * c.k), b_ = random.make<bf16>(c.k * c.n);
    start_ = random.make<C>(c.m * (c.n + 3));
    problem_.transpose_a = c.transpose_a, problem_.transpose_b = c.transpose_b, problem_.accumulate = c.accumulate;
    problem_.m = c.m, problem_.n = c.n, problem_.k = c.k;
    problem_.a = a_.data(), problem_.a_type = GemmType::kBf16, problem_.lda = c.transpose_a ? c.m : c.k;
    problem_.b = b_.data(), problem_.b_type = GemmType::kBf16, problem_.ldb = c.transpose_b ? c.k : c.n;
    problem_.c_type = sizeof(C) == 2 ? GemmType::kBf16 : GemmType::kFp32, problem_.ldc = c.n + 3;
  }

  // C has rows of n + 3 elements, of which the last 3 must not be written.
  std::vector<C> plain() {
    std::vector<C> c = start_;
    problem_.c = c.data();
    avx512_bf16::gemm_amx(problem_, scratch_);
    return c;
  }

  // With B packed in the shares of two threads, and read in parts that begin at a strip.
  std::vector<C> packed() {
    const int64_t strips = packed_strips(case_.n);
    std::vector<float> words(static_cast<size_t>(packed_words(PackedFormat::kAmx, case_.n, case_.k)));
    avx512_bf16::pack_for_amx(problem_, strips / 2, strips, words.data());
    avx512_bf16::pack_for_amx(problem_, 0, strips / 2, words.data());
    const PackedOperand operand{PackedFormat::kAmx, case_.n, case_.k, words.data()};
    std::vector<C> c = start_;
    for (int64_t column = 0; column < case_.n; column += 96) {
      GemmProblem part = problem_;
      part.packed_b = &operand, part.packed_column = column;
      part.b = nullptr;  // not read
      part.n = std::min<int64_t>(96, case_.n - column);
      part.c = c.data() + column;
      avx512_bf16::gemm_amx(part, scratch_);
    }
    return c;
  }

  void expect_the_definition(const std::vector<C>& seen) const {
    const auto expected = reference::matmul(reference::to_double(a_), case_.transpose_a, reference::to_double(b_),
                                            case_.transpose_b, case_.m, case_.n, case_.k);
    for (int64_t i = 0; i < case_.m; ++i) {
      for (int64_t j = 0; j < case_.n + 3; ++j) {
        const auto at = static_cast<size_t>(i * (case_.n + 3) + j), dense = static_cast<size_t>(i * case_.n + j);
        const double before = to_float(start_[at]);
        if (j >= case_.n) {
          ASSERT_EQ(to_float(seen[at]), before) << "wrote beyond row " << i;
          continue;
        }
        const double want = expected.value[dense] + (case_.accumulate ? before : 0.0);
        const double bound =
            static_cast<double>(case_.k + 2) * reference::roundoff<float>() * expected.magnitude[dense] +
            2 * reference::roundoff<C>() * (std::abs(want) + std::abs(before));
        ASSERT_NEAR(to_float(seen[at]), want, bound) << "at " << i << ", " << j;
      }
    }
  }

 private:
  Case case_;
  std::vector<bf16> a_, b_;
  std::vector<C> start_;
  GemmProblem problem_;
  GemmScratch scratch_;
};

template <class C>
void check(const Case& c) {
  SCOPED_TRACE(std::to_string(c.m) + " x " + std::to_string(c.n) + " x " + std::to_string(c.k));
  EmulatedAmx<C> tiles(c);
  const std::vector<C> plain = tiles.plain(), packed = tiles.packed();
  const bool quickly = c.m * c.n * c.k < int64_t{1} << 30;
  if (quickly) tiles.expect_the_definition(plain);
  for (size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(to_float(packed[i]), to_float(plain[i])) << "packed, at " << i;
}

class EmulatedAmxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_supports(Isa::kAvx512Bf16)) GTEST_SKIP() << "CPU lacks avx512_bf16";
  }
};

// Edges of tiles, an odd last element of k, and one, two and three blocks of k.
TEST_F(EmulatedAmxTest, AgreesWithTheDefinition) {
  const int64_t sizes[][3] = {{1, 1, 1},    {16, 32, 32},  {17, 31, 33},  {32, 64, 31},
                              {33, 65, 63}, {47, 130, 70}, {20, 40, 513}, {49, 33, 1100}};
  for (const auto& s : sizes) {
    for (int flags = 0; flags < 8; ++flags) {
      const Case c{s[0], s[1], s[2], (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0};
      check<float>(c);
      if (!c.accumulate) check<bf16>(c);
    }
  }
}

// More rows than a panel of A, so that packed B is kept; more columns than a block; more k than a panel of A, also with
// more columns.
TEST_F(EmulatedAmxTest, AgreesAcrossPanelsAndBlocks) {
  for (int flags = 0; flags < 4; ++flags) {
    const bool transpose_a = (flags & 1) != 0, transpose_b = (flags & 2) != 0;
    check<bf16>({530, 70, 40, transpose_a, transpose_b, false});
    check<bf16>({530, 40, 530, transpose_a, transpose_b, false});
    check<float>({3, 530, 1030, transpose_a, transpose_b, true});
    check<float>({20, 40, 4200, transpose_a, transpose_b, true});
    check<bf16>({2, 2080, 4133, transpose_a, transpose_b, false});
  }
  check<bf16>({513, 2080, 4096, false, false, false});  // B is kept in two parts
}
#endif

}  // namespace
}  // namespace ms::kernels
