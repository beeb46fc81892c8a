// Tensors that FSDP cut by rows and by columns, read in arbitrary ranges.
#include "convert/whole_tensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "convert/named.h"
#include "core/error.h"

namespace ms::convert {
namespace {

const std::string kFolder = core::cat(MS_TEST_DATA, "/fsdp_ranks/");

class WholeTensors : public testing::TestWithParam<const char*> {};

TEST_P(WholeTensors, AnyRangeEqualsTorchsGather) {
  std::vector<std::string> decisions;
  const auto file = open_whole_tensors(open_named(kFolder + GetParam(), false, decisions), "here");
  EXPECT_EQ(file->path(), "here");
  EXPECT_FALSE(file->find("absent"));
  const auto wanted = open_safetensors(core::cat(kFolder, "expected/", GetParam(), ".safetensors"));
  for (size_t i = 0; i < wanted->size(); ++i) {
    const TensorFile::Tensor tensor = (*wanted)[i];
    const auto index = file->find(tensor.name);
    ASSERT_TRUE(index) << tensor.name;
    const TensorFile::Tensor whole = (*file)[*index];
    EXPECT_EQ(whole.dtype, tensor.dtype);
    ASSERT_EQ(std::vector(whole.shape.begin(), whole.shape.end()),
              std::vector(tensor.shape.begin(), tensor.shape.end()));
    std::vector<std::byte> all(tensor.end - tensor.begin);
    wanted->read(tensor.begin, all);
    for (size_t first = 0; first < all.size(); first += 4) {
      for (const size_t count : {size_t{4}, size_t{20}, (all.size() - first)}) {
        if (first + count > all.size()) continue;
        std::vector<std::byte> part(count);
        file->read(whole.begin + first, part);
        EXPECT_EQ(std::memcmp(part.data(), all.data() + first, count), 0)
            << tensor.name << " " << first << " " << count;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Cuts, WholeTensors, testing::Values("shard_2", "hsdp_4", "tp_4"));

}  // namespace
}  // namespace ms::convert
