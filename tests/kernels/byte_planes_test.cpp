#include "kernels/byte_planes.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/forced_isa.h"

namespace ms::kernels {
namespace {

TEST(BytePlanes, SplitAgreesWithTheDefinitionAndJoinInvertsIt) {
  for (const int item : {1, 2, 3, 4, 8, 16}) {
    for (const int64_t n : {0, 1, 15, 16, 17, 1000}) {
      std::vector<std::byte> in(static_cast<size_t>(n * item)), split(in.size()), back(in.size());
      for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i * 131 + i / 256);
      std::vector<std::byte*> planes;
      for (int b = 0; b < item; ++b) planes.push_back(split.data() + b * n);
      split_planes(in.data(), n, item, planes.data());
      for (int b = 0; b < item; ++b) {
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(planes[static_cast<size_t>(b)][i], in[static_cast<size_t>(i * item + b)]);
      }
      join_planes(planes.data(), n, item, back.data());
      EXPECT_EQ(back, in) << item << " x " << n;
    }
  }
}

}  // namespace
}  // namespace ms::kernels
