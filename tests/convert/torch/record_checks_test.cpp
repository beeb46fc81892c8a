// CRCs of records, compared while their parts are read.
#include "convert/torch/record_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "convert/torch/torch_file.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using testing::HasSubstr;

constexpr uint64_t kElements = 300'000;  // a record of 1.2 MB
constexpr uint64_t kPart = 50'000;       // of more than 64 KiB

class RecordChecksTest : public testing::Test {
 protected:
  RecordChecksTest() {
    std::string storage(4 * kElements, '\0');
    for (size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<char>(i * 31 + i / 977);
    const std::string pickle = make_pickle([](PickleWriter& p) {
      write_torch_tensor(p, {SafetensorsDType::kF32, 0, kElements, 0, {kElements}});
    });
    bytes_ = make_torch_archive(pickle, std::span(&storage, 1));
    storage_at_ = bytes_.find(storage);
  }
  TorchFile open() const {
    test::write_file(path_, bytes_);
    return TorchFile(path_);
  }
  void damage(uint64_t element) { bytes_[storage_at_ + 4 * element] ^= 1; }
  static void read(const TorchFile& file, uint64_t first, uint64_t count = kPart) {
    std::vector<std::byte> out(4 * count);
    file.read(*file.tensor(file.root()), first, out);
  }
  static std::string error_of(const std::function<void()>& action) {
    const auto thrown = test::thrown_by(action);
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
    return thrown.text;
  }
  const test::TemporaryFolder folder_;
  const std::string path_ = folder_ / "file.pt";
  std::string bytes_;
  size_t storage_at_ = 0;
};

TEST_F(RecordChecksTest, WithoutOnePassTheFirstReadOfADamagedRecordThrows) {
  damage(299'999);
  const TorchFile file = open();
  EXPECT_THAT(error_of([&] { read(file, 0); }), HasSubstr("CRC-32"));
}

TEST_F(RecordChecksTest, InOnePassTheLastPartOfADamagedRecordThrows) {
  damage(60'000);
  const TorchFile file = open();
  file.begin_one_pass();
  for (const uint64_t part : {3, 1, 5, 0, 2}) read(file, part * kPart);
  EXPECT_THAT(error_of([&] { read(file, 4 * kPart); }), HasSubstr("CRC-32"));
}

TEST_F(RecordChecksTest, InOnePassPartsOfAValidRecordPassInAnyOrder) {
  const TorchFile file = open();
  file.begin_one_pass();
  for (const uint64_t part : {3, 1, 5, 0, 2, 4, 1}) read(file, part * kPart);
  EXPECT_FALSE(file.checks()->has_parts());
  file.end_one_pass(false);
}

TEST_F(RecordChecksTest, OverlapsCountOnceAndFinishReadsTheGaps) {
  for (const bool damaged : {false, true}) {
    if (damaged) damage(199'999);
    const TorchFile file = open();
    file.begin_one_pass();
    read(file, 20'000);
    read(file, 60'000);   // overlaps the end of the first
    read(file, 10'000);   // overlaps its beginning
    read(file, 250'000);  // the last part
    EXPECT_TRUE(file.checks()->has_parts());
    if (damaged) {
      EXPECT_THAT(error_of([&] { file.end_one_pass(false); }), HasSubstr("CRC-32"));
    } else {
      file.end_one_pass(false);
      EXPECT_FALSE(file.checks()->has_parts());
    }
  }
}

TEST_F(RecordChecksTest, SmallReadChecksTheWholeRecordInOnePassToo) {
  damage(299'999);
  const TorchFile file = open();
  file.begin_one_pass();
  read(file, 0);
  EXPECT_THAT(error_of([&] { read(file, 0, 10); }), HasSubstr("CRC-32"));
}

TEST_F(RecordChecksTest, EndOfOnePassChecksUnreadRecordsOnlyWithAll) {
  damage(0);
  const TorchFile file = open();
  file.begin_one_pass();
  ASSERT_TRUE(file.tensor(file.root()));
  file.end_one_pass(false);
  EXPECT_THAT(error_of([&] { file.end_one_pass(true); }), HasSubstr("CRC-32"));
}

TEST_F(RecordChecksTest, AfterOnePassReadsCheckTheWholeRecord) {
  damage(299'999);
  const TorchFile file = open();
  file.begin_one_pass();
  file.end_one_pass(false);
  EXPECT_THAT(error_of([&] { read(file, 0); }), HasSubstr("CRC-32"));
}

TEST_F(RecordChecksTest, PartsAreKeptWhenTheFileIsReopened) {
  damage(60'000);
  const TorchFile first = open();
  first.begin_one_pass();
  for (const uint64_t part : {0, 1, 2}) read(first, part * kPart);
  const TorchFile again(ArchiveRange::whole(path_), first.checks());
  for (const uint64_t part : {3, 4}) read(again, part * kPart);
  EXPECT_THAT(error_of([&] { read(again, 5 * kPart); }), HasSubstr("CRC-32"));
}

}  // namespace
}  // namespace ms::convert
