// atomic_directory.h, lock_file.h and json.h.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/lock_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

class DirectoryTest : public ::testing::Test {
 protected:
  test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

using test::code_of;

TEST_F(DirectoryTest, AppearsOnCommitOnly) {
  {
    AtomicDirectory directory(folder_ / ("x" + temporary_suffix()));
    std::ofstream(directory.path() / "file") << "1";
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  AtomicDirectory directory(folder_ / ("x" + temporary_suffix()));
  std::ofstream(directory.path() / "file") << "1";
  EXPECT_TRUE(directory.commit(folder_ / "x"));
  EXPECT_TRUE(fs::exists(folder_ / "x" / "file"));
}

TEST_F(DirectoryTest, NeverReplaces) {
  fs::create_directory(folder_ / "x");
  {
    AtomicDirectory directory(folder_ / ("x" + temporary_suffix()));
    EXPECT_FALSE(directory.commit(folder_ / "x"));  // even an empty one, which rename(2) would replace
    EXPECT_TRUE(directory.commit(folder_ / "y"));
  }
  EXPECT_TRUE(fs::exists(folder_ / "y"));
}

TEST_F(DirectoryTest, TemporaryNamesDiffer) { EXPECT_NE(temporary_suffix(), temporary_suffix()); }

TEST_F(DirectoryTest, OneLockAtATime) {
  const std::string path = (folder_ / "lock").string();
  auto first = std::make_unique<LockFile>(path);
  EXPECT_EQ(code_of([&] { LockFile second(path); }), ErrorCode::kIo);
  first.reset();
  EXPECT_NO_THROW(LockFile third(path));
}

TEST(Json, LookupsNameThePlace) {
  const auto json = parse_json(R"({"a": 1, "b": "x", "c": [1], "d": 18446744073709551615})", "here");
  EXPECT_EQ(json_integer(json, "a", "here"), 1);
  EXPECT_EQ(json_string(json, "b", "here"), "x");
  EXPECT_EQ(json_array(json, "c", "here").size(), 1u);
  for (const char* key : {"b", "c", "d", "absent"}) {
    EXPECT_EQ(code_of([&] { json_integer(json, key, "here"); }), ErrorCode::kCorruptData);
  }
  EXPECT_EQ(code_of([&] { json_object(json, "a", "here"); }), ErrorCode::kCorruptData);
  try {
    json_string(json, "a", "here");
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "here: \"a\": expected a string, but it is 1");
  }
}

TEST(Json, RefusesWhatIsNotADocument) {
  const std::string deep(100, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{} x"), std::string("\xff\xfe"), deep}) {
    EXPECT_EQ(code_of([&] { parse_json(text, "here"); }), ErrorCode::kCorruptData);
  }
  EXPECT_NO_THROW(
      parse_json(R"({"a": "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\""})", "here"));
}

TEST(Json, HexRoundTrip) {
  EXPECT_EQ(hex16(0x0123456789abcdefu), "0123456789abcdef");
  EXPECT_EQ(parse_hex16("0123456789abcdef", "here"), 0x0123456789abcdefu);
  for (const char* text : {"", "0123456789ABCDEF", "0123456789abcde", "0123456789abcdeg"}) {
    EXPECT_EQ(code_of([&] { parse_hex16(text, "here"); }), ErrorCode::kCorruptData);
  }
}

}  // namespace
}  // namespace ms::core
