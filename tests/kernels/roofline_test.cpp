#include "kernels/roofline.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "kernels/isa.h"
#include "tests/kernels/forced_isa.h"

namespace ms::kernels {
namespace {

TEST(MultiplyAdds, ReturnsFlopsOfAllLanes) {
  const int lanes = active_isa() >= Isa::kAvx512 ? 16 : active_isa() == Isa::kAvx2 ? 8 : 1;
  EXPECT_EQ(multiply_adds(1000), 2.0 * lanes * 12 * 1000);
}

TEST(Bf16MultiplyAdds, ReturnsFlopsOrZeroIfUnsupported) {
  const double flops = bf16_multiply_adds(1000);
  EXPECT_TRUE(flops == 0 || flops == 2.0 * 32 * 12 * 1000) << flops;
  if (flops == 0) {
    EXPECT_FALSE(bf16_dot_products_are_faster());
  }
  if (active_isa() < Isa::kAvx512Bf16) {
    EXPECT_EQ(flops, 0);
  }
  EXPECT_EQ(bf16_dot_products_are_faster(), bf16_dot_products_are_faster());
}

TEST(StreamMover, WritesTheSumOfInputsWithinItsRange) {
  constexpr int64_t kSize = 64, kBegin = 8, kEnd = 40;
  const int mixes[][2] = {{1, 0}, {1, 1}, {1, 2}, {2, 1}, {3, 1}, {3, 2}, {4, 4}};
  for (const auto& [reads, writes] : mixes) {
    for (const bool non_temporal : {false, true}) {
      struct Aligned {
        alignas(64) float values[kSize];
      };
      std::array<Aligned, kMaxStreamReads> in{};
      std::array<Aligned, kMaxStreamWrites> out{};
      Streams streams{};
      for (size_t r = 0; r < in.size(); ++r) {
        for (int64_t i = 0; i < kSize; ++i)
          in[r].values[i] = static_cast<float>((r + 1) * 100 + static_cast<size_t>(i));
        streams.in[r] = in[r].values;
      }
      for (size_t w = 0; w < out.size(); ++w) streams.out[w] = out[w].values;
      stream_mover(reads, writes, non_temporal)(streams, kBegin, kEnd);
      for (size_t w = 0; w < out.size(); ++w) {
        for (int64_t i = 0; i < kSize; ++i) {
          float want = 0;
          for (int r = 0; r < reads; ++r) want += in[static_cast<size_t>(r)].values[i];
          if (static_cast<int>(w) >= writes || i < kBegin || i >= kEnd) want = 0;
          ASSERT_EQ(out[w].values[i], want) << reads << "/" << writes << " stream " << w << " at " << i;
        }
      }
    }
  }
  EXPECT_THROW(stream_mover(5, 1, false), std::invalid_argument);
}

}  // namespace
}  // namespace ms::kernels
