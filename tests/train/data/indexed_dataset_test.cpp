#include "train/data/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace ms::train {
namespace {

using core::Error;
using core::ErrorCode;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;
using testing::HasSubstr;

std::vector<int32_t> tokens_of(const IndexedDataset& dataset, int64_t sequence) {
  std::vector<int32_t> out(static_cast<size_t>(dataset.sequence_length(sequence)));
  dataset.read(sequence, 0, out);
  return out;
}

// Documents [1 2 3], [], [4 5].
void write_small(const std::string& prefix, TokenType type = TokenType::kUint16) {
  IndexedDatasetBuilder builder(prefix, type);
  builder.add_document(std::vector<int32_t>{1, 2, 3});
  builder.add_document({});
  builder.add_document(std::vector<int32_t>{4, 5});
  builder.finalize();
}

TEST(IndexedDataset, WritesTheBytesOfTheFormat) {
  const TemporaryFolder dir;
  write_small(dir / "a");
  EXPECT_EQ(read_file(dir / "a.bin"), std::string("\1\0\2\0\3\0\4\0\5\0", 10));
  const std::string expected(
      "MMIDIDX\0\0"        // magic
      "\1\0\0\0\0\0\0\0"   // version
      "\10"                // uint16 is code 8
      "\2\0\0\0\0\0\0\0"   // sequences
      "\4\0\0\0\0\0\0\0"   // document indices
      "\3\0\0\0\2\0\0\0"   // lengths
      "\0\0\0\0\0\0\0\0"   // pointers
      "\6\0\0\0\0\0\0\0"   //
      "\0\0\0\0\0\0\0\0"   // documents
      "\1\0\0\0\0\0\0\0"   //
      "\1\0\0\0\0\0\0\0"   //
      "\2\0\0\0\0\0\0\0",  //
      34 + 8 + 16 + 32);
  EXPECT_EQ(read_file(dir / "a.idx"), expected);
}

TEST(IndexedDataset, ReadsWhatItWrote) {
  for (const TokenType type : {TokenType::kUint16, TokenType::kInt32}) {
    for (const bool use_mmap : {true, false}) {
      const TemporaryFolder dir;
      write_small(dir / "a", type);
      const IndexedDataset dataset(dir / "a", use_mmap);
      EXPECT_EQ(dataset.token_type(), type);
      EXPECT_EQ(dataset.num_sequences(), 2);
      EXPECT_EQ(dataset.num_documents(), 3);
      EXPECT_EQ(dataset.num_tokens(), 5);
      EXPECT_EQ(tokens_of(dataset, 0), (std::vector<int32_t>{1, 2, 3}));
      EXPECT_EQ(tokens_of(dataset, 1), (std::vector<int32_t>{4, 5}));
      std::vector<int32_t> part(1);
      dataset.read(0, 2, part);
      EXPECT_EQ(part[0], 3);
      EXPECT_EQ(dataset.sequence_lengths(0, 2), (std::vector<int32_t>{3, 2}));
      part.resize(2);
      EXPECT_THROW(dataset.read(0, 2, part), Error);
      EXPECT_THROW(dataset.read(2, 0, part), Error);
      EXPECT_THROW(dataset.read(0, -1, part), Error);
    }
  }
}

TEST(IndexedDataset, DocumentMayExceedTheWriteBuffer) {
  const TemporaryFolder dir;
  std::vector<int32_t> tokens(5'000'000);
  std::iota(tokens.begin(), tokens.end(), 0);
  IndexedDatasetBuilder builder(dir / "a", TokenType::kInt32);
  builder.add_document(tokens);
  builder.add_document(std::span(tokens).first(7));
  builder.finalize();
  const IndexedDataset dataset(dir / "a");
  EXPECT_EQ(tokens_of(dataset, 0), tokens);
  EXPECT_EQ(tokens_of(dataset, 1).size(), 7);
}

TEST(IndexedDataset, SplitsDocumentsTooLongForAnInt32) {
  const TemporaryFolder dir;
  IndexedDatasetBuilder builder(dir / "a", TokenType::kInt32, 3);
  builder.add_document(std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6});
  builder.add_document(std::vector<int32_t>{7, 8, 9});
  builder.finalize();
  const IndexedDataset dataset(dir / "a");
  EXPECT_EQ(dataset.sequence_lengths(0, 4), (std::vector<int32_t>{3, 3, 1, 3}));
  EXPECT_EQ(dataset.num_documents(), 2);
  EXPECT_EQ(dataset.document_index(1), 3);
  EXPECT_EQ(tokens_of(dataset, 2), (std::vector<int32_t>{6}));
}

TEST(IndexedDataset, EmptySetIsValid) {
  const TemporaryFolder dir;
  IndexedDatasetBuilder(dir / "a", TokenType::kInt32).finalize();
  const IndexedDataset dataset(dir / "a");
  EXPECT_EQ(dataset.num_sequences() + dataset.num_documents() + dataset.num_tokens(), 0);
}

TEST(IndexedDatasetBuilder, LeavesNothingWithoutFinalize) {
  const TemporaryFolder dir;
  {
    IndexedDatasetBuilder builder(dir / "a", TokenType::kUint16);
    builder.add_document(std::vector<int32_t>{1});
    EXPECT_FALSE(std::filesystem::exists(dir / "a.bin"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(IndexedDatasetBuilder, RefusesIdsThatDoNotFit) {
  const TemporaryFolder dir;
  IndexedDatasetBuilder builder(dir / "a", TokenType::kUint16);
  EXPECT_THROW(builder.add_document(std::vector<int32_t>{65536}), Error);
  EXPECT_THROW(builder.add_document(std::vector<int32_t>{-1}), Error);
}

TEST(IndexedDataset, TokenTypeFollowsTheVocabulary) {
  EXPECT_EQ(token_type_for_vocab(257), TokenType::kUint16);
  EXPECT_EQ(token_type_for_vocab(65499), TokenType::kUint16);
  EXPECT_EQ(token_type_for_vocab(65500), TokenType::kInt32);
  EXPECT_EQ(token_size_bytes(TokenType::kInt64), 8);
}

// --- hostile files: what is wrong, how the valid .idx or .bin is changed, what the error says ---

struct Hostile {
  const char* name;
  std::function<void(std::string& idx, std::string& bin)> change;
  ErrorCode code;
  const char* says;
};

template <class T>
void put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

class HostileFiles : public testing::TestWithParam<Hostile> {};

TEST_P(HostileFiles, AreRefusedWithOneClearError) {
  const TemporaryFolder dir;
  write_small(dir / "a");
  std::string idx = read_file(dir / "a.idx");
  std::string bin = read_file(dir / "a.bin");
  GetParam().change(idx, bin);
  write_file(dir / "a.idx", idx);
  write_file(dir / "a.bin", bin);
  for (const bool use_mmap : {true, false}) {
    try {
      const IndexedDataset dataset(dir / "a", use_mmap);
      FAIL() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), GetParam().code) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(GetParam().says));
      EXPECT_THAT(e.what(), HasSubstr(dir / "a"));
    }
  }
}

const Hostile kHostile[] = {
    {"EmptyIdx", [](auto& idx, auto&) { idx.clear(); }, ErrorCode::kCorruptData, "0 bytes"},
    {"CutInTheHeader", [](auto& idx, auto&) { idx.resize(33); }, ErrorCode::kCorruptData, "33 bytes"},
    {"CutInTheLengths", [](auto& idx, auto&) { idx.resize(37); }, ErrorCode::kCorruptData, "too few"},
    {"CutByOneByte", [](auto& idx, auto&) { idx.pop_back(); }, ErrorCode::kCorruptData, "too few"},
    {"TrailingByte", [](auto& idx, auto&) { idx += 'x'; }, ErrorCode::kCorruptData, "1 bytes too many"},
    {"Multimodal", [](auto& idx, auto&) { idx += std::string(2, '\1'); }, ErrorCode::kUnsupported, "multimodal"},
    {"BadMagic", [](auto& idx, auto&) { idx[0] = 'X'; }, ErrorCode::kCorruptData, "MMIDIDX"},
    {"BadVersion", [](auto& idx, auto&) { idx[9] = 2; }, ErrorCode::kCorruptData, "version 2"},
    {"BadDtype", [](auto& idx, auto&) { idx[17] = 9; }, ErrorCode::kCorruptData, "dtype code 9"},
    {"FloatDtype", [](auto& idx, auto&) { idx[17] = 7; }, ErrorCode::kUnsupported, "floating-point"},
    {"SequenceCountWraps", [](auto& idx, auto&) { put<uint64_t>(idx, 18, UINT64_MAX / 12 + 2); },
     ErrorCode::kCorruptData, "too few"},
    {"DocumentCountWraps", [](auto& idx, auto&) { put<uint64_t>(idx, 26, UINT64_MAX / 8 + 2); },
     ErrorCode::kCorruptData, "too few"},
    {"NegativeLength", [](auto& idx, auto&) { put<int32_t>(idx, 34, -1); }, ErrorCode::kCorruptData, "length -1"},
    {"LengthPastTheBin", [](auto& idx, auto&) { put<int32_t>(idx, 38, INT32_MAX); }, ErrorCode::kCorruptData,
     "sequence 1"},
    {"NegativePointer", [](auto& idx, auto&) { put<int64_t>(idx, 42, -2); }, ErrorCode::kCorruptData, "byte -2"},
    {"PointerPastTheBin", [](auto& idx, auto&) { put<int64_t>(idx, 50, 11); }, ErrorCode::kCorruptData, "byte 11"},
    {"PointerNearOverflow", [](auto& idx, auto&) { put<int64_t>(idx, 50, INT64_MAX); }, ErrorCode::kCorruptData,
     "sequence 1"},
    {"DocumentsDoNotBeginAtZero", [](auto& idx, auto&) { put<int64_t>(idx, 58, 1); }, ErrorCode::kCorruptData,
     "document index 0"},
    {"DocumentsFall", [](auto& idx, auto&) { put<int64_t>(idx, 74, 0); }, ErrorCode::kCorruptData, "document index 2"},
    {"DocumentPastTheEnd", [](auto& idx, auto&) { put<int64_t>(idx, 82, 3); }, ErrorCode::kCorruptData,
     "document index 3"},
    {"DocumentsEndEarly", [](auto& idx, auto&) { put<int64_t>(idx, 82, 1); }, ErrorCode::kCorruptData,
     "last document index is 1"},
    {"BinCut", [](auto&, auto& bin) { bin.resize(9); }, ErrorCode::kCorruptData, "9 bytes"},
    {"BinEmpty", [](auto&, auto& bin) { bin.clear(); }, ErrorCode::kCorruptData, "0 bytes"},
    {"BinOfAnotherMake", [](auto&, auto& bin) { bin += "xx"; }, ErrorCode::kCorruptData, "one make"},
};
INSTANTIATE_TEST_SUITE_P(IndexedDataset, HostileFiles, testing::ValuesIn(kHostile),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(IndexedDataset, KeepsNoDescriptorsOpen) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator fds("/proc/self/fd");
    return std::distance(begin(fds), end(fds));
  };
  const TemporaryFolder dir;
  write_small(dir / "a");
  const auto before = open_files();
  const IndexedDataset mapped(dir / "a", true), read(dir / "a", false);
  std::vector<int32_t> x(2), y(2);
  mapped.read(0, 0, x);
  read.read(0, 0, y);
  EXPECT_EQ(x, y);
  EXPECT_EQ(open_files(), before);
}

TEST(IndexedDataset, EveryTruncationOfTheIdxIsRefused) {
  const TemporaryFolder dir;
  write_small(dir / "a");
  const std::string idx = read_file(dir / "a.idx");
  for (size_t size = 0; size < idx.size(); ++size) {
    write_file(dir / "a.idx", idx.substr(0, size));
    EXPECT_THROW(IndexedDataset dataset(dir / "a"), Error) << size;
  }
}

TEST(IndexedDataset, MissingFilesAreNamed) {
  const TemporaryFolder dir;
  write_small(dir / "a");
  for (const char* end : {".idx", ".bin"}) {
    const std::string path = dir / "a" + end;
    std::filesystem::rename(path, path + "x");
    try {
      const IndexedDataset dataset(dir / "a");
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kNotFound);
      EXPECT_THAT(e.what(), HasSubstr(path));
    }
    std::filesystem::rename(path + "x", path);
  }
  try {
    const IndexedDataset dataset(dir / "a.bin");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("without .bin"));
  }
}

TEST(IndexedDataset, NegativeTokensAreRefusedWhenRead) {
  const TemporaryFolder dir;
  write_small(dir / "a", TokenType::kInt32);
  std::string bin = read_file(dir / "a.bin");
  put<int32_t>(bin, 4, -7);
  write_file(dir / "a.bin", bin);
  const IndexedDataset dataset(dir / "a");
  try {
    tokens_of(dataset, 0);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kCorruptData);
  }
}

}  // namespace
}  // namespace ms::train
