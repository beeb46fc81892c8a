#include "core/io/write_notes.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace ms::core {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

class WriteNotesTest : public ::testing::Test {
 protected:
  void add_three() const {
    WriteNotes notes(path_, 7, false);
    notes.add(0, 0, bytes_of("aaaa"));
    notes.add(0, 4, bytes_of("bb"));
    notes.add(3, 4, bytes_of("c"));
  }
  test::TemporaryFolder folder_;
  const std::string path_ = folder_ / "notes";
};

TEST_F(WriteNotesTest, EarlierReturnsHashesOfRecordedRanges) {
  add_three();
  const WriteNotes notes(path_, 7, true);
  EXPECT_TRUE(notes.has_earlier());
  EXPECT_EQ(notes.earlier(0, 0, 4), WriteNotes::hash_of(bytes_of("aaaa")));
  EXPECT_EQ(notes.earlier(3, 4, 1), WriteNotes::hash_of(bytes_of("c")));
  EXPECT_FALSE(notes.earlier(0, 0, 3)) << "other bounds";
  EXPECT_FALSE(notes.earlier(1, 0, 4));
}

TEST_F(WriteNotesTest, NotesOfAnotherJobOrWithoutKeepAreIgnored) {
  add_three();
  EXPECT_FALSE(WriteNotes(path_, 8, true).has_earlier());
  add_three();
  EXPECT_FALSE(WriteNotes(path_, 7, false).has_earlier());
  EXPECT_FALSE(WriteNotes(path_, 7, true).has_earlier()) << "keep false discards earlier notes";
}

// Wherever the file is truncated or a bit is flipped: records before it remain, none is invented, and new ones can be
// added.
TEST_F(WriteNotesTest, DamageLosesNotesButInventsNone) {
  add_three();
  const std::string whole = test::read_file(path_);
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const bool cut : {true, false}) {
      std::string damaged = cut ? whole.substr(0, at) : whole;
      if (!cut) damaged[at] = static_cast<char>(damaged[at] ^ 4);
      test::write_file(path_, damaged);
      {
        WriteNotes notes(path_, 7, true);
        for (const auto& [file, offset, text] : {std::tuple{0, 0, "aaaa"}, {0, 4, "bb"}, {3, 4, "c"}}) {
          const auto found = notes.earlier(file, offset, static_cast<int64_t>(std::string(text).size()));
          EXPECT_EQ(found.value_or(WriteNotes::hash_of(bytes_of(text))), WriteNotes::hash_of(bytes_of(text))) << at;
        }
        EXPECT_FALSE(notes.earlier(3, 4, 1)) << at;  // the last record, which any damage loses
        notes.add(9, 9, bytes_of("new"));
      }
      EXPECT_TRUE(WriteNotes(path_, 7, true).earlier(9, 9, 3)) << at;
    }
  }
}

TEST_F(WriteNotesTest, ConcurrentRecordsDoNotMix) {
  constexpr int64_t kEach = 500;
  {
    WriteNotes notes(path_, 7, false);
    std::vector<std::thread> threads;
    for (int64_t file = 0; file < 4; ++file) {
      threads.emplace_back([&notes, file] {
        for (int64_t i = 0; i < kEach; ++i) notes.add(file, i, bytes_of("x"));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const WriteNotes notes(path_, 7, true);
  for (int64_t file = 0; file < 4; ++file) {
    for (int64_t i = 0; i < kEach; ++i) ASSERT_TRUE(notes.earlier(file, i, 1)) << file << " " << i;
  }
}

}  // namespace
}  // namespace ms::core
