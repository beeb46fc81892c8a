// Weighted averages compared with plain loops, for any sharding and dtype.
#include "ckpt/merge.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ckpt/reader.h"
#include "core/error.h"
#include "tests/ckpt/floats.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

using test::Floats, test::some_values, test::thrown_by;

template <class... Sources>
std::vector<std::unique_ptr<Source>> list_of(Sources&&... sources) {
  std::vector<std::unique_ptr<Source>> list;
  (list.push_back(std::make_unique<std::decay_t<Sources>>(std::forward<Sources>(sources))), ...);
  return list;
}

TEST(Merge, EqualsWeightedAverageForAnySharding) {
  const auto a = some_values(60 * 50);
  auto b = a, c = a;
  for (size_t i = 0; i < a.size(); ++i) {
    b[i] = 3 * a[i] + 1;
    c[i] = -a[i] * a[i];
  }
  const auto merged =
      merge_sources(list_of(Floats({60, 50}, 20, a), Floats({60, 50}, 7, b), Floats({60, 50}, 20, c)), {2, 1, 5});
  std::vector<float> seen(13 * 50);
  merged->read(0, {4, 0}, {13, 50}, reinterpret_cast<std::byte*>(seen.data()));
  for (size_t i = 0; i < seen.size(); ++i) {
    const size_t at = 4 * 50 + i;
    EXPECT_EQ(seen[i], static_cast<float>(0.25 * a[at] + 0.125 * b[at] + 0.625 * c[at])) << i;
  }
  std::vector<float> column(40);  // of the second shard, not contiguous
  merged->read(1, {0, 9}, {40, 1}, reinterpret_cast<std::byte*>(column.data()));
  for (size_t i = 0; i < column.size(); ++i) {
    const size_t at = (20 + i) * 50 + 9;
    EXPECT_EQ(column[i], static_cast<float>(0.25 * a[at] + 0.125 * b[at] + 0.625 * c[at])) << i;
  }
}

// Larger than the pieces that are added at once; the average of a tensor with itself is bitwise equal to it.
TEST(Merge, OfEqualValuesIsBitwiseEqual) {
  const auto values = some_values(1200 * 1000);
  const auto merged =
      merge_sources(list_of(Floats({1200, 1000}, 1100, values), Floats({1200, 1000}, 300, values)), {1, 3});
  std::vector<float> seen(1100 * 1000);
  merged->read(0, {0, 0}, {1100, 1000}, reinterpret_cast<std::byte*>(seen.data()));
  EXPECT_EQ(std::memcmp(seen.data(), values.data(), seen.size() * 4), 0);
}

TEST(Merge, RefusesDifferentModels) {
  const auto values = some_values(12);
  const auto text_of = [](std::vector<std::unique_ptr<Source>> sources, std::vector<double> weights) {
    const auto thrown = thrown_by([&] { merge_sources(std::move(sources), std::move(weights)); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
    return thrown.text;
  };
  const Floats a({4, 3}, 1, values);
  EXPECT_NE(text_of(list_of(a, Floats({3, 4}, 1, values)), {1, 1}).find("x has another shape"), std::string::npos);
  EXPECT_NE(text_of(list_of(a, a), {1}).find("2 checkpoints to merge, but 1 weights"), std::string::npos);
  EXPECT_NE(text_of(list_of(a, a), {1, 0}).find("weight 0"), std::string::npos);
  test::TemporaryFolder folder;
  const auto config = test::small_model(17);
  const auto path = test::write_checkpoint(folder.path(), {2, 1, 1, false}, config, test::mixed_roles(), 100);
  auto sources = list_of(a);
  sources.push_back(open_native(path));
  EXPECT_NE(text_of(std::move(sources), {1, 1}).find("x is missing in it"), std::string::npos);
}

}  // namespace
}  // namespace ms::ckpt
