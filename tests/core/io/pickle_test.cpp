#include "core/io/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

using testing::HasSubstr;

std::map<std::string, PickleValue> members(PickleValue dict) {
  std::map<std::string, PickleValue> found;
  for (const auto& [key, value] : dict.pairs()) found.emplace(std::string(key.text()), value);
  return found;
}

std::string error_of(const std::string& bytes, ErrorCode code) {
  const test::Thrown thrown = test::thrown_by([&] { Pickle(bytes, "test"); });
  EXPECT_EQ(thrown.code, code) << thrown.text;
  return thrown.text;
}

TEST(PickleTest, ParsesPythonValuesOfEveryProtocol) {
  for (const char* protocol : {"2", "3", "4", "5"}) {
    SCOPED_TRACE(protocol);
    const Pickle pickle(test::read_file(cat(MS_TEST_DATA, "/torch/values", protocol, ".pkl")), "values");
    const auto all = members(pickle.root());
    const auto tuple = all.at("tuple").items();
    ASSERT_EQ(tuple.size(), 4u);
    EXPECT_EQ(tuple[3].integer(), 4);
    EXPECT_EQ(all.at("floats").items()[0].real(), 1.5);
    EXPECT_TRUE(std::signbit(all.at("floats").items()[1].real()));
    const int64_t ints[] = {0, 255, 256, 65536, -1, -129, int64_t{1} << 40};
    for (size_t i = 0; i < std::size(ints); ++i) EXPECT_EQ(all.at("ints").items()[i].integer(), ints[i]);
    EXPECT_TRUE(all.at("ints").items()[7].is(PickleKind::kLong));
    EXPECT_EQ(all.at("ints").items()[8].integer(), INT64_MIN);
    EXPECT_EQ(all.at("text").text(), "h\xc3\xa9llo");
    EXPECT_EQ(all.at("long").text(), std::string(300, 'x'));
    const PickleValue frozen = all.at("frozen");
    EXPECT_EQ((frozen.is(PickleKind::kSet) ? frozen.items() : frozen.arguments()[0].items())[0].text(), "b");
    EXPECT_EQ(all.at("empty").items().size(), 3u);
    ASSERT_TRUE(all.at("ordered").is_call_of("collections", "OrderedDict"));
    EXPECT_EQ(all.at("ordered").pairs().at(0).second.integer(), 1);
    EXPECT_EQ(all.at("many").items().size(), 1500u);
    EXPECT_EQ(all.at("many").items()[1499].integer(), 1499);
    const auto looped = members(all.at("looped"));
    EXPECT_EQ(looped.at("list").id(), looped.at("same").id());
    EXPECT_EQ(looped.at("self").id(), all.at("looped").id());
  }
}

TEST(PickleTest, SymbolIsOnlyAName) {
  // os.system("false"), as in an attack.
  const std::string bytes =
      "\x80\x02"
      "cos\nsystem\nX\x05" +
      std::string(3, '\0') + "false\x85R.";
  const Pickle pickle(bytes, "test");
  ASSERT_TRUE(pickle.root().is_call_of("os", "system"));
  EXPECT_EQ(pickle.root().arguments().at(0).text(), "false");
  EXPECT_FALSE(pickle.root().state().has_value());
  const Pickle old(
      "\x80\x02"
      "c__builtin__\nset\n.",
      "test");
  EXPECT_TRUE(old.root().is_symbol("builtins", "set"));
}

// Nested lists: no recursion, and a limit on the number of open ones.
TEST(PickleTest, DeepNestingIsBounded) {
  const size_t deep = 500'000;
  const Pickle pickle("\x80\x02" + std::string(deep, ']') + std::string(deep - 1, 'a') + ".", "test");
  EXPECT_EQ(pickle.root().items().size(), 1u);
  EXPECT_THAT(error_of("\x80\x02" + std::string((1 << 20) + 1, ']'), ErrorCode::kCorruptData),
              HasSubstr("values on the stack"));
  EXPECT_THAT(error_of("\x80\x02" + std::string((1 << 20) + 1, '('), ErrorCode::kCorruptData), HasSubstr("marks"));
}

TEST(PickleTest, AnotherPickleMayFollow) {
  const Pickle pickle("\x80\x02K\x07.rest", "test");
  EXPECT_EQ(pickle.root().integer(), 7);
  EXPECT_EQ(pickle.end(), 5u);
}

TEST(PickleTest, DamagedPicklesAreRefused) {
  const std::string good = test::read_file(cat(MS_TEST_DATA, "/torch/values4.pkl"));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(Pickle(good.substr(0, size), "cut"), Error) << size;
  }
  EXPECT_THAT(error_of("\x80\x02.", ErrorCode::kCorruptData), HasSubstr("byte 2: a value is missing"));
  EXPECT_THAT(error_of("\x80\x02K\x01K\x02.", ErrorCode::kCorruptData), HasSubstr("values are left on the stack"));
  EXPECT_THAT(error_of("\x80\x02h\x05.", ErrorCode::kCorruptData), HasSubstr("memo 5 is empty"));
  EXPECT_THAT(error_of("\x80\x02K\x01r\xff\xff\xff\x7f.", ErrorCode::kCorruptData), HasSubstr("memo 2147483647"));
  EXPECT_THAT(error_of("\x80\x02]K\x01K\x02s.", ErrorCode::kCorruptData), HasSubstr("items for a list"));
  EXPECT_THAT(error_of("\x80\x02}K\x01u.", ErrorCode::kCorruptData), HasSubstr("a mark is missing"));
  EXPECT_THAT(error_of("\x80\x02}(K\x01u.", ErrorCode::kCorruptData), HasSubstr("a key without a value"));
  EXPECT_THAT(error_of("\x80\x02(t0(K\x01", ErrorCode::kCorruptData), HasSubstr("it is truncated"));
  EXPECT_THAT(error_of("\x80\x02X\xff\xff\xff\xff.", ErrorCode::kCorruptData), HasSubstr("it is truncated"));
  EXPECT_THAT(error_of("\x80\x02\x01.", ErrorCode::kCorruptData), HasSubstr("opcode 1"));
  EXPECT_THAT(error_of("\x80\x02I7\n.", ErrorCode::kUnsupported), HasSubstr("opcode 73"));
  EXPECT_THAT(error_of("\x80\x06N.", ErrorCode::kUnsupported), HasSubstr("protocol 6"));
}

TEST(PickleTest, WrongKindThrows) {
  const Pickle pickle("\x80\x02K\x07.", "test");
  EXPECT_THAT(test::thrown_by([&] { pickle.root().text(); }).text, HasSubstr("expected a string, found an int"));
  EXPECT_THROW(pickle.root().items(), Error);
  EXPECT_THROW(pickle.root().arguments(), Error);
}

// Billion laughs: a list of lists of the previous list, nine levels deep, stays small here.
TEST(PickleTest, SharedValuesAreNotCopied) {
  std::string bytes = "\x80\x02]q";
  bytes += '\0';
  for (char level = 1; level < 40; ++level) {
    bytes += "](";
    for (int i = 0; i < 10; ++i) bytes += std::string("h") + static_cast<char>(level - 1);
    bytes += std::string("eq") + level + "0";
  }
  bytes.insert(bytes.size(), "h'.");
  // Pops the first list, which would remain on the stack, before the end.
  bytes.insert(5, "0");
  const Pickle pickle(bytes, "test");
  EXPECT_EQ(pickle.root().items().size(), 10u);
}

}  // namespace
}  // namespace ms::core
