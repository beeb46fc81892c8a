#include "train/data/detail/decoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::train::detail {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::string>;

std::string decoded(const char* described, Tokens tokens, bool byte_level = false) {
  return Decoder(json::parse(described), byte_level).decode(std::move(tokens));
}

TEST(Decoder, NullSeparatesTokensUnlessTheyAreBytes) {
  EXPECT_EQ(decoded("null", {"a", "b"}), "a b");
  EXPECT_EQ(decoded("null", {"a", "b"}, true), "ab");
  EXPECT_EQ(decoded(R"({"type": "ByteLevel"})", {"a", " b"}, true), "a b");
  EXPECT_EQ(decoded("null", {}), "");
}

TEST(Decoder, InvalidUtf8BytesBecomeOneReplacementEach) {
  const char* described = R"({"type": "ByteFallback"})";
  EXPECT_EQ(decoded(described, {"x", "<0xC3>", "<0xA9>", "y"}), "x\xC3\xA9y");
  EXPECT_EQ(decoded(described, {"<0xC3>", "y", "<0xA9>"}), "\xEF\xBF\xBDy\xEF\xBF\xBD");
  EXPECT_EQ(decoded(described, {"<0x0g>", "<0x0A", "<0xA>"}), "<0x0g><0x0A<0xA>") << "no byte tokens";
}

TEST(Decoder, StripRemovesUpToItsCountFromEachEnd) {
  EXPECT_EQ(decoded(R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})", {"  a ", " b"}), " a b");
  EXPECT_EQ(decoded(R"({"type": "Strip", "content": "-", "start": 0, "stop": 9})", {"a--", "--"}), "a");
}

TEST(Decoder, MetaspaceDropsTheLeadingSpace) {
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"})", {"_a", "_b"}), "a b");
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"})", {"_a", "_b"}), " a b");
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false})", {"_a"}), " a");
}

// Llama's: stand-ins become spaces, bytes are joined, fused into one text, and the leading space is dropped.
TEST(Decoder, SequenceAppliesInOrder) {
  const char* described = R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
  EXPECT_EQ(decoded(described, {"_the", "_caf", "<0xC3>", "<0xA9>", "__"}), "the caf\xC3\xA9  ");
}

TEST(Decoder, RefusesUnsupportedTypes) {
  const auto code = [](const char* described, bool byte_level) {
    return test::code_of([&] { decoded(described, {}, byte_level); });
  };
  EXPECT_EQ(code(R"({"type": "WordPiece"})", false), core::ErrorCode::kUnsupported);
  EXPECT_EQ(code(R"({"type": "Fuse"})", true), core::ErrorCode::kUnsupported);
  EXPECT_EQ(code(R"({"type": "ByteLevel"})", false), core::ErrorCode::kUnsupported);
  EXPECT_EQ(code(R"({"type": "Strip", "content": "", "start": 1, "stop": 0})", false), core::ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace ms::train::detail
