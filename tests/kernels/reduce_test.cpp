#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "tests/kernels/forced_isa.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

template <class T>
class Reduce : public ::testing::Test {};
using Types = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(Reduce, Types);

// The same order of additions, so the bits are equal: no tolerance.
TYPED_TEST(Reduce, AddsInTheOrderOfTheInputsAndRoundsOnce) {
  for (const int64_t n : {0, 1, 7, 8, 16, 17, 63, 64, 65, 1009}) {
    for (const int num_inputs : {1, 2, 3, 8}) {
      test::RandomValues random(static_cast<uint64_t>(n * 10 + num_inputs));
      std::vector<std::vector<TypeParam>> inputs;
      std::vector<const TypeParam*> pointers;
      for (int r = 0; r < num_inputs; ++r) inputs.push_back(random.make<TypeParam>(n + 1));
      const auto originals = inputs;
      for (const auto& input : inputs) pointers.push_back(input.data() + 1);
      std::vector<TypeParam>& out = inputs[static_cast<size_t>(num_inputs / 2)];  // in place
      reduce(Reduction::kSum, pointers.data(), num_inputs, n, out.data() + 1);
      for (size_t i = 1; i < out.size(); ++i) {
        float sum = to_float(originals[0][i]);
        for (int r = 1; r < num_inputs; ++r) sum += to_float(originals[static_cast<size_t>(r)][i]);
        ASSERT_EQ(to_float(out[i]), to_float(TypeParam(sum))) << n << " of " << num_inputs << " at " << i;
      }
      EXPECT_EQ(to_float(out[0]), to_float(originals[static_cast<size_t>(num_inputs / 2)][0]));
    }
  }
}

TYPED_TEST(Reduce, DividesTheSumOnceForTheMean) {
  for (const int64_t n : {1, 17, 64, 1009}) {
    for (const int num_inputs : {1, 2, 3, 7}) {
      test::RandomValues random(static_cast<uint64_t>(n * 10 + num_inputs));
      std::vector<std::vector<TypeParam>> inputs;
      std::vector<const TypeParam*> pointers;
      for (int r = 0; r < num_inputs; ++r) inputs.push_back(random.make<TypeParam>(n));
      for (const auto& input : inputs) pointers.push_back(input.data());
      std::vector<TypeParam> out(static_cast<size_t>(n));
      reduce(Reduction::kMean, pointers.data(), num_inputs, n, out.data());
      for (size_t i = 0; i < out.size(); ++i) {
        float sum = to_float(inputs[0][i]);
        for (int r = 1; r < num_inputs; ++r) sum += to_float(inputs[static_cast<size_t>(r)][i]);
        ASSERT_EQ(to_float(out[i]), to_float(TypeParam(sum / static_cast<float>(num_inputs))))
            << n << " of " << num_inputs << " at " << i;
      }
    }
  }
}

TYPED_TEST(Reduce, FindsTheLargestAndTheSmallest) {
  test::RandomValues random(5);
  const auto a = random.make<TypeParam>(100), b = random.make<TypeParam>(100), c = random.make<TypeParam>(100);
  const TypeParam* inputs[] = {a.data(), b.data(), c.data()};
  std::vector<TypeParam> largest(100), smallest(100);
  reduce(Reduction::kMax, inputs, 3, 100, largest.data());
  reduce(Reduction::kMin, inputs, 3, 100, smallest.data());
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(to_float(largest[i]), std::max({to_float(a[i]), to_float(b[i]), to_float(c[i])}));
    EXPECT_EQ(to_float(smallest[i]), std::min({to_float(a[i]), to_float(b[i]), to_float(c[i])}));
  }
}

}  // namespace
}  // namespace ms::kernels
