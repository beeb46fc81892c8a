#include "convert/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

using ::testing::HasSubstr;

std::string length_bytes(uint64_t value) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string make_file(const std::string& header, size_t data_bytes) {
  return length_bytes(header.size()) + header + std::string(data_bytes, 'x');
}

SafetensorsHeader parse(const std::string& file) {
  const auto read = [&](uint64_t offset, std::span<std::byte> out) {
    ASSERT_LE(offset + out.size(), file.size()) << "a read past the end of the file";
    std::memcpy(out.data(), file.data() + offset, out.size());
  };
  return parse_safetensors_header(file.size(), read, "f");
}

std::string error_of(const std::string& file, core::ErrorCode code = core::ErrorCode::kCorruptData) {
  try {
    parse(file);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

std::string error_of_header(const std::string& header, size_t data_bytes = 0) {
  return error_of(make_file(header, data_bytes));
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& range) {
  return core::cat("\"", name, R"(":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)", range, "}");
}

std::string braces(const std::string& entries) { return core::cat("{", entries, "}"); }

TEST(SafetensorsTest, ReadsNamesShapesRangesAndMetadata) {
  const SafetensorsHeader header =
      parse(make_file(R"({"__metadata__":{"format":"pt"},)" + entry("b", "F32", "[2,1]", "[4,12]") + "," +
                          entry("a", "BF16", "[2]", "[0,4]") + "}   ",
                      12));
  ASSERT_EQ(header.size(), 2u);
  EXPECT_EQ(header[0].name, "a");
  EXPECT_EQ(header[0].dtype, SafetensorsDType::kBF16);
  EXPECT_EQ(header[1].name, "b");
  EXPECT_THAT(header[1].shape, ::testing::ElementsAre(2u, 1u));
  EXPECT_EQ(header[1].begin, 4u);
  EXPECT_EQ(header[1].end, 12u);
  EXPECT_EQ(header.find("b"), 1u);
  EXPECT_EQ(header.find("c"), std::nullopt);
  EXPECT_EQ(header.metadata().at("format"), "pt");
}

TEST(SafetensorsTest, ScalarsAndEmptyTensorsMayShareAnOffset) {
  const SafetensorsHeader header =
      parse(make_file(braces(entry("e", "F32", "[0,7]", "[4,4]") + "," + entry("s", "F32", "[]", "[0,4]") + "," +
                             entry("d", "I8", "[0]", "[0,0]") + "," + entry("f", "U8", "[0]", "[4,4]")),
                      4));
  ASSERT_EQ(header.size(), 4u);
  EXPECT_EQ(header[0].name, "d");
  EXPECT_EQ(header[1].name, "s");
  EXPECT_TRUE(header[1].shape.empty());
}

TEST(SafetensorsTest, FileWithoutTensorsIsAccepted) { EXPECT_EQ(parse(make_file("{}", 0)).size(), 0u); }

TEST(SafetensorsTest, EveryDTypeIsKnown) {
  for (const char* name : {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
                           "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
                           "U32",     "F32",         "C64",         "F64",     "I64", "U64"}) {
    const auto dtype = parse_safetensors_dtype(name);
    ASSERT_TRUE(dtype) << name;
    EXPECT_EQ(safetensors_dtype_name(*dtype), name);
    const uint64_t bytes = bits_of(*dtype);  // of 8 elements
    const std::string range = core::cat("[0,", bytes, "]");
    EXPECT_EQ(parse(make_file(braces(entry("t", name, "[8]", range)), bytes)).size(), 1u) << name;
  }
}

TEST(SafetensorsTest, WrongFileOrHeaderSizeIsRefused) {
  EXPECT_THAT(error_of(""), HasSubstr("at least 8"));
  EXPECT_THAT(error_of("1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(error_of(length_bytes(0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(error_of(length_bytes(~uint64_t{0}) + "{}"), HasSubstr("18446744073709551615"));
  EXPECT_THAT(error_of(length_bytes(~uint64_t{0} - 7) + "{}"), HasSubstr("claims"));
  EXPECT_THAT(error_of(length_bytes(100'000'001) + "{}"), HasSubstr("100000000"));
  EXPECT_THAT(error_of(length_bytes(3) + "{}"), HasSubstr("claims 3 bytes but 2 follow"));
}

TEST(SafetensorsTest, InvalidJsonIsRefused) {
  EXPECT_THAT(error_of_header(" {}"), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(error_of_header("\xef\xbb\xbf{}"), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(error_of_header("[]"), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(error_of_header("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_header("{\"a\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_header("{\"\xff\":{}}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_header("{\"\xc0\x80\":{}}"), HasSubstr("not valid JSON"));  // an overlong NUL
  EXPECT_THAT(error_of_header("{} x"), HasSubstr("after its closing brace"));
  EXPECT_THAT(error_of_header("{}\n"), HasSubstr("after its closing brace"));
  EXPECT_THAT(error_of_header("{}{}"), HasSubstr("after its closing brace"));
  EXPECT_THAT(error_of_header(std::string("{}\0", 3)), HasSubstr("after its closing brace"));
  EXPECT_THAT(error_of_header("{,}"), HasSubstr("not valid JSON"));
}

TEST(SafetensorsTest, DuplicateAndUnknownKeysAreRefused) {
  const std::string a = entry("a", "U8", "[0]", "[0,0]");
  EXPECT_THAT(error_of_header(braces(a + "," + a)), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(error_of_header(braces(a + "," + entry("\\u0061", "U8", "[0]", "[0,0]"))),
              HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
              HasSubstr("duplicate key \"dtype\""));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})"),
              HasSubstr("duplicate key \"shape\""));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})"),
              HasSubstr("unknown key \"x\""));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"U8","shape":[0]}})"), HasSubstr("lacks"));
  EXPECT_THAT(error_of_header(R"({"a":{}})"), HasSubstr("lacks"));
  EXPECT_THAT(error_of_header(R"({"__metadata__":{"a":1}})"), HasSubstr("__metadata__ has the number 1"));
  EXPECT_THAT(error_of_header(R"({"__metadata__":{"a":{}}})"), HasSubstr("__metadata__ has an object"));
  EXPECT_THAT(error_of_header(R"({"__metadata__":{"a":["b"]}})"), HasSubstr("__metadata__ has an array"));
  EXPECT_THAT(error_of_header(R"({"__metadata__":{"a":"b","a":"c"}})"), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(error_of_header(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("duplicate key \"__metadata__\""));
  EXPECT_THAT(error_of_header(R"({"__metadata__":"x"})"), HasSubstr("a string"));
  EXPECT_THAT(error_of_header(R"({"a":5})"), HasSubstr("the number 5"));
  EXPECT_THAT(error_of_header(R"({"a":null})"), HasSubstr("null"));
  EXPECT_THAT(error_of_header(R"({"a":[]})"), HasSubstr("an array"));
}

TEST(SafetensorsTest, DeepJsonIsRefused) {
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"U8","shape":[[0]],"data_offsets":[0,0]}})"), HasSubstr("an array"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":{},"shape":[0],"data_offsets":[0,0]}})"), HasSubstr("an object"));
  EXPECT_THAT(error_of_header(core::cat("{\"a\":", std::string(1'000'000, '['))), HasSubstr("an array"));
}

TEST(SafetensorsTest, InvalidDTypeOrShapeIsRefused) {
  EXPECT_THAT(error_of_header(braces(entry("a", "F33", "[0]", "[0,0]"))), HasSubstr("unknown dtype \"F33\""));
  EXPECT_THAT(error_of_header(braces(entry("a", "F32", "[-1]", "[0,0]"))), HasSubstr("negative"));
  EXPECT_THAT(error_of_header(braces(entry("a", "F32", "[1.0]", "[0,4]")), 4), HasSubstr("1.0"));
  EXPECT_THAT(error_of_header(braces(entry("a", "F32", "[true]", "[0,4]")), 4), HasSubstr("true or false"));
  EXPECT_THAT(error_of_header(braces(entry("a", "F32", "[18446744073709551616]", "[0,4]")), 4), HasSubstr("number"));
  EXPECT_THAT(error_of_header(braces(entry("a", "U8", "[4294967296,4294967296]", "[0,0]"))), HasSubstr("below 2^64"));
  EXPECT_THAT(error_of_header(braces(entry("a", "F64", "[2305843009213693952]", "[0,0]"))), HasSubstr("below 2^64"));
  EXPECT_THAT(error_of_header(braces(entry("a", "F4", "[3]", "[0,2]")), 2), HasSubstr("whole number of bytes"));
  std::string ones = "[1";
  for (int axis = 1; axis < 65; ++axis) ones += ",1";
  EXPECT_THAT(
      error_of(make_file(braces(entry("a", "U8", core::cat(ones, "]"), "[0,1]")), 1), core::ErrorCode::kUnsupported),
      HasSubstr("64 axes"));
}

TEST(SafetensorsTest, InvalidRangeIsRefused) {
  EXPECT_THAT(error_of_header(braces(entry("a", "F32", "[1]", "[4,0]")), 4), HasSubstr("takes 4 bytes"));
  EXPECT_THAT(error_of_header(braces(entry("a", "F32", "[1]", "[0,3]")), 3), HasSubstr("takes 4 bytes"));
  EXPECT_THAT(error_of_header(braces(entry("a", "F32", "[1]", "[0,8]")), 8), HasSubstr("takes 4 bytes"));
  EXPECT_THAT(error_of_header(braces(entry("a", "F32", "[1]", "[0]")), 4), HasSubstr("1 numbers, not 2"));
  EXPECT_THAT(error_of_header(braces(entry("a", "F32", "[1]", "[0,4,4]")), 4), HasSubstr("more than 2"));
  EXPECT_THAT(error_of_header(braces(entry("a", "F32", "[1]", "[18446744073709551612,0]")), 4), HasSubstr("takes 4"));
}

TEST(SafetensorsTest, GapsAndOverlapsAreRefused) {
  const std::string a = entry("a", "U8", "[4]", "[0,4]");
  EXPECT_THAT(error_of_header(braces(a + "," + entry("b", "U8", "[4]", "[2,6]")), 6), HasSubstr("overlap"));
  EXPECT_THAT(error_of_header(braces(a + "," + entry("b", "U8", "[4]", "[0,4]")), 4), HasSubstr("overlap"));
  EXPECT_THAT(error_of_header(braces(a + "," + entry("b", "U8", "[4]", "[5,9]")), 9), HasSubstr("gap"));
  EXPECT_THAT(error_of_header(braces(entry("a", "U8", "[4]", "[1,5]")), 5), HasSubstr("gap"));
  EXPECT_THAT(error_of_header(braces(a), 5), HasSubstr("trailing bytes"));
  EXPECT_THAT(error_of_header(braces(a), 3), HasSubstr("truncated"));
  EXPECT_THAT(error_of_header("{}", 1), HasSubstr("trailing bytes"));
}

TEST(SafetensorsTest, NamesInErrorsStayOnOneLine) {
  const std::string text = error_of_header(braces(entry("a\\nb\\u0000", "F33", "[0]", "[0,0]")));
  EXPECT_THAT(text, HasSubstr("\"a\\x0ab\\x00\""));
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

std::string small_file() {
  return make_file(core::cat(R"({"__metadata__":{"format":"pt"},)", entry("b", "F32", "[2,3]", "[0,24]"), ",",
                             entry("a", "BF16", "[2]", "[24,28]"), "}  "),
                   28);
}

TEST(SafetensorsTest, TruncationAtEveryByteIsRefused) {
  const std::string file = small_file();
  EXPECT_EQ(error_of(file), "accepted");
  for (size_t size = 0; size < file.size(); ++size) EXPECT_NE(error_of(file.substr(0, size)), "accepted") << size;
}

TEST(SafetensorsTest, EveryBitFlipIsRefusedOrLeavesAValidHeader) {
  const std::string file = small_file();
  const size_t header_end = file.size() - 28;
  int refused = 0;
  for (size_t bit = 0; bit < header_end * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    try {
      const SafetensorsHeader header = parse(flipped);  // a name may change, the tiling may not
      ASSERT_EQ(header.size(), 2u);
      EXPECT_EQ(header[1].end, 28u);
      EXPECT_EQ(header[0].shape[0] * header[0].shape[1], 6u);
    } catch (const core::Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(header_end) * 8 * 3 / 4);
}

TEST(SafetensorsTest, HeaderLargerThanTheReadWindowIsRead) {
  std::string header = "{";
  for (int i = 0; i < 5000; ++i) {
    header +=
        core::cat(i == 0 ? "" : ",", entry(core::cat("tensor.", i), "U8", "[1]", core::cat("[", i, ",", i + 1, "]")));
  }
  const SafetensorsHeader parsed = parse(make_file(header + "}", 5000));
  ASSERT_EQ(parsed.size(), 5000u);
  EXPECT_EQ(parsed[*parsed.find("tensor.4321")].begin, 4321u);
}

TEST(SafetensorsTest, WrittenFileIsByteIdenticalToTheReferenceWriters) {
  const std::string golden = test::read_file(std::string(MS_TEST_DATA) + "/hf_llama_tiny/model.safetensors");
  ASSERT_FALSE(golden.empty());
  const SafetensorsHeader header = parse(golden);
  std::vector<SafetensorsEntry> entries;
  for (size_t i = header.size(); i-- > 0;) {  // any order works
    const auto tensor = header[i];
    entries.push_back({std::string(tensor.name), tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}});
  }
  const SafetensorsPreamble preamble = make_safetensors_preamble(entries, header.metadata());
  EXPECT_EQ(preamble.bytes, golden.substr(0, preamble.bytes.size()));
  EXPECT_EQ(preamble.file_size_bytes, golden.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(preamble.data_offsets[i], header.data_start() + header[*header.find(entries[i].name)].begin);
  }
}

TEST(SafetensorsTest, WriterOrdersByDTypeThenNameAndAlignsTheData) {
  const std::vector<SafetensorsEntry> entries = {{"b", SafetensorsDType::kBF16, {3}},
                                                 {"z", SafetensorsDType::kF32, {1}},
                                                 {"a\"\n\xc3\xa9", SafetensorsDType::kF32, {}},
                                                 {"c", SafetensorsDType::kI64, {0}}};
  const SafetensorsPreamble preamble = make_safetensors_preamble(entries, {});
  EXPECT_EQ(preamble.bytes.size() % 8, 0u);
  const SafetensorsHeader header = parse(preamble.bytes + std::string(14, 'x'));
  EXPECT_EQ(header[0].name, "c");
  EXPECT_EQ(header[1].name, "a\"\n\xc3\xa9");
  EXPECT_EQ(header[2].name, "z");
  EXPECT_EQ(header[3].name, "b");
  EXPECT_TRUE(header.metadata().empty());
}

TEST(SafetensorsTest, WriterRefusesDuplicateNames) {
  const std::vector<SafetensorsEntry> twins = {{"a", SafetensorsDType::kU8, {1}}, {"a", SafetensorsDType::kF32, {1}}};
  EXPECT_THROW(make_safetensors_preamble(twins, {}), core::Error);
  const std::vector<SafetensorsEntry> reserved = {{"__metadata__", SafetensorsDType::kU8, {1}}};
  EXPECT_THROW(make_safetensors_preamble(reserved, {}), core::Error);
}

TEST(SafetensorsTest, ReaderReadsFromAFile) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "f", make_file(braces(entry("a", "U8", "[3]", "[0,3]")), 0) + "abc");
  const SafetensorsReader reader(folder / "f");
  std::string out(2, ' ');
  reader.read(1, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "bc");
  EXPECT_THROW(SafetensorsReader(folder / "none"), core::Error);
}

}  // namespace
}  // namespace ms::convert
