#include "core/printable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/log.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

TEST(Printable, ValuesAreBareWordsOrQuoted) {
  EXPECT_EQ(shown_value("rope"), "rope");
  EXPECT_EQ(shown_value(""), "\"\"");
  EXPECT_EQ(shown_value("two words"), "\"two words\"");
  EXPECT_EQ(shown_value("a\nline"), "\"a\\x0aline\"");
  EXPECT_EQ(shown_value(std::string(200, 'a')), std::string(200, 'a'));
  EXPECT_EQ(shown_value(std::string(201, 'a')), "\"" + std::string(200, 'a') + "...\"");
}

TEST(Printable, OneOfListsWhatIsExpected) {
  EXPECT_NO_THROW(require_one_of("--color", "blue", {"red", "blue"}));
  EXPECT_NO_THROW(require_one_of("--color", "", {"", "red"}));
  const auto refused = [](const std::string& value) {
    const test::Thrown thrown = test::thrown_by([&] {
      require_one_of("--color", value, {"", "red", "green", "blue"}, "; or none");
    });
    EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
    return thrown.text;
  };
  EXPECT_EQ(refused("grey"), "--color grey: expected red, green or blue; or none");
  EXPECT_EQ(refused(" "), "--color \" \": expected red, green or blue; or none");
  EXPECT_EQ(test::thrown_by([] {
              require_one_of("--color", "", {"red", "blue"});
            }).text,
            "--color \"\": expected red or blue");
}

TEST(Printable, LongWordsKeepTheirEnds) {
  const std::string begin(240, 'b'), middle(39, 'm'), end(120, 'e');
  const std::string word = begin + middle + end + ":";
  EXPECT_EQ(without_long_words("read  " + word + " it is\nabsent"), "read  " + word + " it is\nabsent");
  EXPECT_EQ(without_long_words("read " + begin + middle + "mm" + end + " here"),
            "read " + begin + ".." + end + " here");
  EXPECT_EQ(without_long_words(""), "");
}

TEST(Printable, WarningsAndErrorsHaveNoLongWords) {
  const std::string name = "/begin/" + std::string(5000, 'a') + "/end.txt";
  for (const auto log : {log_warning, log_error}) {
    testing::internal::CaptureStderr();
    log("tests", "cannot open " + name + ": File name too long");
    const std::string line = testing::internal::GetCapturedStderr();
    EXPECT_LT(line.size(), 500U);
    EXPECT_THAT(line, HasSubstr("] cannot open /begin/aaa"));
    EXPECT_THAT(line, EndsWith("aaa/end.txt: File name too long\n"));
  }
  testing::internal::CaptureStderr();
  log_info("tests", name);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(name)) << "what was asked for is whole";
}

// UTF-8 of two and of four bytes, at any place of the cut.
TEST(Printable, CharactersAreNotDivided) {
  for (const std::string letter : {"\xc3\xa9", "\xf0\x9f\x98\x80"}) {
    for (size_t shift = 0; shift < letter.size(); ++shift) {
      std::string word(shift, 'a');
      while (word.size() < 1000) word += letter;
      const std::string text = without_long_words(word);
      const size_t cut = text.find("..");
      ASSERT_NE(cut, std::string::npos);
      EXPECT_EQ((cut - shift) % letter.size(), 0U);
      EXPECT_EQ((text.size() - cut - 2) % letter.size(), 0U);
    }
  }
}

TEST(Printable, CountedNounsTakeAnSUnlessThereIsOne) {
  EXPECT_EQ(counted(0, "row"), "0 rows");
  EXPECT_EQ(counted(1, "row"), "1 row");
  EXPECT_EQ(counted(21, "row"), "21 rows");
}

}  // namespace
}  // namespace ms::core
