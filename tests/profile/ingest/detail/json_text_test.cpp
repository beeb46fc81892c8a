// Decoding of JSON strings, and the members of objects.
#include "profile/ingest/detail/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ms::profile::detail {
namespace {

TEST(JsonText, Unescapes) {
  EXPECT_EQ(unescape(""), "");
  EXPECT_EQ(unescape(R"(a\"b\\c\/d)"), "a\"b\\c/d");
  EXPECT_EQ(unescape(R"(\b\f\n\r\t)"), "\b\f\n\r\t");
  EXPECT_EQ(unescape(R"(\u0041\u00e9\u20ac)"), "A\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(unescape(R"(\ud83d\ude00)"), "\xf0\x9f\x98\x80") << "a pair of surrogates";
  EXPECT_EQ(unescape(R"(\ud83dx)"), "\xed\xa0\xbdx") << "one alone";
  EXPECT_EQ(unescape(R"(\ud83d\u0041)"), "\xed\xa0\xbd\x41");
  EXPECT_EQ(unescape(R"(\q\u12)"), "qu12") << "unknown ones keep their character";
  EXPECT_EQ(unescape("end\\"), "end\\");
}

std::vector<std::string> members(const std::string& object) {
  std::vector<std::string> out;
  const std::string padded = object + std::string(kScanPadding, '\0');
  for_each_member({padded.data(), object.size()}, [&](const Value& key, const Value& value) {
    out.push_back(std::string(key.text()) + "=" + std::string(value.text()));
  });
  return out;
}

TEST(JsonText, MembersOfAnObject) {
  using testing::ElementsAre;
  EXPECT_THAT(members("{}"), ElementsAre());
  EXPECT_THAT(members(R"({ "a" : 1 , "b": "x,\"}", "c":{"d":[1,2]}})"),
              ElementsAre("a=1", "b=x,\\\"}", R"(c={"d":[1,2]})"));
  EXPECT_THAT(members(R"({"a": 1, "b" 2, "c": 3})"), ElementsAre("a=1")) << "up to the damage";
}

}  // namespace
}  // namespace ms::profile::detail
