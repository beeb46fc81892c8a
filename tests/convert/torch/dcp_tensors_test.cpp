// Any range of a tensor that DCP keeps in shards, cut by rows or by columns, is that of the whole tensor; shards that
// do not tile it are refused.
#include "convert/torch/dcp_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

// Made by tests/data/make_dcp_fsdp.py.
const std::string kFolder = core::cat(MS_TEST_DATA, "/dcp_fsdp");

TEST(DcpTensors, EveryRangeOfEveryTensor) {
  const auto sharded = open_dcp_tensors(std::make_shared<DcpReader>(kFolder));
  const auto whole = open_safetensors(kFolder + "/expected/param/model.safetensors");
  ASSERT_GT(whole->size(), 10U);
  int64_t by_columns = 0;
  for (size_t i = 0; i < whole->size(); ++i) {
    const TensorFile::Tensor wanted = (*whole)[i];
    const auto found = sharded->find(core::cat("model.", wanted.name));
    ASSERT_TRUE(found.has_value()) << wanted.name;
    const TensorFile::Tensor seen = (*sharded)[*found];
    ASSERT_EQ(seen.dtype, wanted.dtype);
    ASSERT_TRUE(std::ranges::equal(seen.shape, wanted.shape)) << wanted.name;
    ASSERT_EQ(seen.end - seen.begin, wanted.end - wanted.begin);
    by_columns += wanted.name.ends_with("o_proj.weight") || wanted.name.ends_with("down_proj.weight");
    const uint64_t elements = (wanted.end - wanted.begin) / 4;
    std::vector<std::byte> all(elements * 4);
    whole->read(wanted.begin, all);
    for (uint64_t first = 0; first < elements; first += 3) {
      for (uint64_t count = 1; count <= elements - first; count += 7) {
        std::vector<std::byte> part(count * 4);
        sharded->read(seen.begin + first * 4, part);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(first * 4)))
            << wanted.name << ": " << count << " elements from " << first;
      }
    }
  }
  EXPECT_EQ(by_columns, 2) << "tensors that the script cuts by columns";
  EXPECT_FALSE(sharded->find("model.nothing").has_value());
}

}  // namespace
}  // namespace ms::convert
