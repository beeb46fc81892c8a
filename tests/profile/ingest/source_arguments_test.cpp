// Arguments of slices by their position in the file.
#include "profile/ingest/source_arguments.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::profile {
namespace {

class SourceArgumentsTest : public testing::Test {
 protected:
  FileInfo file(const std::string& text) const {
    ms::test::write_file(folder_ / "a.json", text);
    LoadOptions options;
    options.keep_file_order = true;
    return load({folder_ / "a.json"}, options).files.at(0);
  }

  ms::test::TemporaryFolder folder_;
};

constexpr const char* kText = R"({"deviceProperties": [{"id": 3}], "traceEvents": [
  {"ph": "X", "name": "late", "ts": 9, "dur": 1, "args": {"a": 1}},
  {"ph": "M", "name": "process_name", "args": {"name": "no slice"}},
  {"ph": "B", "name": "begun", "ts": 1, "args": {"b": [2, {"c": "}"}]}},
  {"ph": "E", "ts": 5, "args": {"no": "slice"}},
  {"ph": "X", "name": "bare", "ts": 2, "dur": 1}]})";

TEST_F(SourceArgumentsTest, ComeInTheOrderOfTheFileForSlicesOnly) {
  std::vector<std::pair<uint32_t, std::string>> seen;
  const SourceFacts facts =
      read_arguments(file(kText), [&](uint32_t slice, std::string_view text) { seen.emplace_back(slice, text); });
  EXPECT_EQ(facts.slices, 3u);
  EXPECT_EQ(facts.device_properties, R"([{"id": 3}])");
  EXPECT_EQ(seen, (std::vector<std::pair<uint32_t, std::string>>{
                      {0, R"({"a": 1})"}, {1, R"({"b": [2, {"c": "}"}]})"}, {2, ""}}));
}

TEST_F(SourceArgumentsTest, FileOfAnotherLengthIsRefused) {
  const FileInfo before = file(kText);
  ms::test::write_file(before.path, R"({"traceEvents": []})");
  const auto refused = ms::test::thrown_by([&] { read_arguments(before, [](uint32_t, std::string_view) {}); });
  EXPECT_EQ(refused.code, core::ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace ms::profile
