// Pickled values as JSON, and back.
#include "convert/torch/plain_value.h"

#include <gtest/gtest.h>

#include <string>

namespace ms::convert {
namespace {

using nlohmann::json;

std::optional<json> through_pickle(const std::function<void(PickleWriter&)>& write) {
  const Pickle pickle(make_pickle(write), "here");
  return plain_value(pickle.root());
}

TEST(PlainValue, NestedValuesRoundTrip) {
  const json value =
      json::parse(R"({"last_epoch": 5, "base_lrs": [0.001, 0.002], "verbose": false, "lr_lambdas": [null],
                                     "mode": "min", "nested": {"x": [[1]]}, "negative": -7})");
  EXPECT_EQ(through_pickle([&](PickleWriter& p) { write_plain_value(p, value); }), value);
}

TEST(PlainValue, FloatsKeepTheirBits) {
  const double rate = 3e-4 / 7;
  const auto read = through_pickle([&](PickleWriter& p) { write_plain_value(p, rate); });
  ASSERT_TRUE(read && read->is_number_float());
  EXPECT_EQ(read->get<double>(), rate);
}

TEST(PlainValue, ValuesThatJsonCannotHoldGiveNullopt) {
  EXPECT_FALSE(through_pickle([](PickleWriter& p) { p.real(std::numeric_limits<double>::infinity()); }).has_value());
  EXPECT_FALSE(through_pickle([](PickleWriter& p) { p.text("\xc3\xa4"); }).has_value());
  EXPECT_FALSE(through_pickle([](PickleWriter& p) { p.call("os", "getcwd", [] {}); }).has_value());
  EXPECT_FALSE(through_pickle([](PickleWriter& p) {
                 p.dict([&] {
                   p.integer(1);
                   p.integer(2);
                 });
               }).has_value());
}

TEST(PlainValue, DeepNestingGivesNullopt) {
  const auto nested = [](int depth) {
    json value = 1;
    for (int i = 0; i < depth; ++i) value = json::array({value});
    return through_pickle([&](PickleWriter& p) { write_plain_value(p, value); }).has_value();
  };
  EXPECT_TRUE(nested(4));
  EXPECT_FALSE(nested(5));
}

}  // namespace
}  // namespace ms::convert
