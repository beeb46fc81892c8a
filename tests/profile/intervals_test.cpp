// The interval algebra compared with a bitmap at nanosecond resolution.
#include "profile/intervals.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>

namespace ms::profile {
namespace {

constexpr int kLength = 300;
using Bitmap = std::vector<bool>;

Bitmap bitmap_of(const std::vector<Interval>& intervals) {
  Bitmap bits(kLength);
  for (const Interval& interval : intervals) {
    for (int64_t t = interval.start; t < interval.end; ++t) bits[static_cast<size_t>(t)] = true;
  }
  return bits;
}

Bitmap combine(const Bitmap& a, const Bitmap& b, const std::function<bool(bool, bool)>& op) {
  Bitmap out(kLength);
  for (size_t i = 0; i < kLength; ++i) out[i] = op(a[i], b[i]);
  return out;
}

void expect_same(const IntervalSet& set, const Bitmap& bits) {
  EXPECT_EQ(bitmap_of(set.intervals()), bits);
  EXPECT_EQ(set.length(), std::count(bits.begin(), bits.end(), true));
  for (size_t i = 0; i < set.intervals().size(); ++i) {
    EXPECT_LT(set.intervals()[i].start, set.intervals()[i].end);
    if (i == 0) continue;
    EXPECT_LT(set.intervals()[i - 1].end, set.intervals()[i].start) << "touching intervals merge";
  }
}

TEST(Intervals, AgreeWithABitmapOnRandomSets) {
  const char* given = std::getenv("MS_TEST_SEED");
  const auto seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("MS_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto draw = [&] {
    std::vector<Interval> out(random() % 12);
    for (Interval& interval : out) {
      interval.start = static_cast<int64_t>(random() % kLength);
      interval.end = std::min<int64_t>(kLength, interval.start + static_cast<int64_t>(random() % 40));
    }
    return out;
  };
  for (int round = 0; round < 500; ++round) {
    const std::vector<Interval> x = draw(), y = draw();
    const IntervalSet a(x), b(y);
    const Bitmap p = bitmap_of(x), q = bitmap_of(y);
    expect_same(a, p);
    for (const Interval& range : y) {
      EXPECT_EQ(a.length_within(range), intersect(a, IntervalSet({range})).length());
    }
    expect_same(unite(a, b), combine(p, q, [](bool i, bool j) { return i || j; }));
    expect_same(intersect(a, b), combine(p, q, [](bool i, bool j) { return i && j; }));
    expect_same(subtract(a, b), combine(p, q, [](bool i, bool j) { return i && !j; }));
  }
}

TEST(Intervals, EdgesOfTheWorld) {
  const IntervalSet nothing;
  EXPECT_TRUE(nothing.empty());
  EXPECT_EQ(subtract(nothing, nothing).length(), 0);
  const int64_t far = int64_t{1} << 61;
  const IntervalSet all({{-far, far}});
  EXPECT_EQ(subtract(all, IntervalSet({{0, 1}})).length(), 2 * far - 1);
  EXPECT_TRUE(IntervalSet({{5, 5}, {7, 3}}).empty());
}

}  // namespace
}  // namespace ms::profile
