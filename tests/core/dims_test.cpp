#include "core/dims.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>
#include <vector>

#include "core/sharded_tensor.h"

namespace ms::core {
namespace {

TEST(Dims, BehavesLikeAVector) {
  Dims dims = {4, 5};
  std::vector<int64_t> vector = {4, 5};
  const auto same = [&] { return std::vector<int64_t>(dims.begin(), dims.end()) == vector; };
  const std::vector<int64_t> more = {7, 8};
  for (const auto& change : std::vector<std::function<void(Dims&, std::vector<int64_t>&)>>{
           [](auto&d, auto&v) { d.push_back(6), v.push_back(6); },
           [&](auto&d, auto&v) {
             d.insert(d.begin() + 1, more.begin(), more.end()), v.insert(v.begin() + 1, more.begin(), more.end());
           },
           [](auto&d, auto&v) { d.insert(d.end(), 2, 9), v.insert(v.end(), 2, 9); },
           [](auto&d, auto&v) { d.insert(d.begin(), 1), v.insert(v.begin(), 1); },
           [](auto&d, auto&v) { d.erase(d.begin() + 1), v.erase(v.begin() + 1); },
           [](auto&d, auto&v) { d.erase(d.begin(), d.begin() + 2), v.erase(v.begin(), v.begin() + 2); },
           [](auto&d, auto&v) { d.resize(2), v.resize(2); }, [](auto&d, auto&v) { d.resize(5, 3), v.resize(5, 3); },
           [](auto&d, auto&v) { d.pop_back(), v.pop_back(); }, [](auto&d, auto&v) { d.assign(3, 2), v.assign(3, 2); },
           [](auto&d, auto&v) { d.clear(), v.clear(); }}) {
    change(dims, vector);
    EXPECT_TRUE(same()) << dims;
    EXPECT_EQ(dims.size(), vector.size());
    EXPECT_EQ(dims.empty(), vector.empty());
  }
}

TEST(Dims, ComparesAndPrintsLikeAList) {
  EXPECT_EQ((Dims{2, 3}), (Dims{2, 3}));
  EXPECT_NE((Dims{2, 3}), (Dims{2, 3, 1}));
  Dims shortened = {2, 3, 4};
  shortened.pop_back();
  EXPECT_EQ(shortened, (Dims{2, 3})) << "values after the last axis are ignored";
  EXPECT_LT((Dims{2, 3}), (Dims{2, 3, 1}));
  EXPECT_LT((Dims{1, 9}), (Dims{2}));
  EXPECT_EQ(cat(Dims{2, 3}, Dims{}), "[2, 3][]");
  const Dims dims = {2, 3};
  EXPECT_EQ(cat(std::span(dims.begin(), dims.end())), "[2, 3]");
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({2, 3, 4}), 24);
}

TEST(Dims, ConvertsToAndFromJsonLists) {
  const nlohmann::json json = Dims{2, 3};
  EXPECT_EQ(json.dump(), "[2,3]");
  EXPECT_EQ(json.get<Dims>(), (Dims{2, 3}));
}

TEST(Dims, StoredInlineAndTooManyAxesAreRejected) {
  static_assert(std::is_trivially_copyable_v<Dims>);
  Dims dims(Dims::kMaxAxes, 1);
  try {
    dims.push_back(1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_STREQ(e.what(), "a tensor of 9 axes; at most 8 are supported");
  }
  EXPECT_EQ(dims.size(), Dims::kMaxAxes);
  EXPECT_THROW(dims.insert(dims.begin(), 2, 1), Error);
  EXPECT_THROW(dims.resize(9), Error);
}

}  // namespace
}  // namespace ms::core
