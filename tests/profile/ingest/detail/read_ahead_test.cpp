#include "profile/ingest/detail/read_ahead.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/support/text_stream.h"

namespace ms::profile::detail {
namespace {

std::string numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(i);
  return text;
}

// Keeps what is lent ahead, by offset, and counts calls that were not expected exactly once.
class Ahead final : public AheadReader {
 public:
  void expect(int64_t offset) override {
    const std::lock_guard lock(mutex_);
    ++expected_[offset];
  }
  void read_ahead(std::span<char> text, int64_t offset) override {
    const std::lock_guard lock(mutex_);
    wrong_ += expected_[offset] != 1;
    texts_[offset].append(text.begin(), text.end());
  }
  std::map<int64_t, std::string> texts() {
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  int wrong() const { return wrong_; }

 private:
  std::mutex mutex_;
  std::map<int64_t, int> expected_;
  std::map<int64_t, std::string> texts_;
  int wrong_ = 0;
};

TEST(ReadAhead, LendsTheTextInOrderAndEachBlockAheadAtMostOnce) {
  const std::string text = numbers(1'000'000);
  for (const int threads : {2, 3, 5}) {
    ReadAhead stream(std::make_unique<test::TextStream>(text, 10'007), threads);
    Ahead ahead;
    stream.lend_ahead(&ahead);
    std::string all;
    for (std::span<char> loan = stream.lend(); !loan.empty(); loan = stream.lend()) {
      all.append(loan.begin(), loan.end());
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // so that the other threads come to read ahead
    }
    stream.lend_ahead(nullptr);
    EXPECT_EQ(all, text) << threads;
    EXPECT_EQ(ahead.wrong(), 0);
    EXPECT_FALSE(ahead.texts().empty());
    for (const auto& [offset, piece] : ahead.texts()) {
      EXPECT_EQ(piece, text.substr(static_cast<size_t>(offset), piece.size())) << threads << ", " << offset;
    }
  }
}

// A reader that waits does the work itself.
TEST(ReadAhead, HelpEndsWhenAllBlocksAreFullAndReadAhead) {
  const std::string text = numbers(2'000'000);
  ReadAhead stream(std::make_unique<test::TextStream>(text), 2);
  Ahead ahead;
  stream.lend_ahead(&ahead);
  const std::span<char> first = stream.lend();
  ASSERT_FALSE(first.empty());
  while (ahead.texts().size() < 5) stream.help();  // with the reader's, three blocks for each thread
  EXPECT_FALSE(stream.help());
  stream.lend_ahead(nullptr);
  int64_t next = std::ssize(first);
  for (const auto& [offset, piece] : ahead.texts()) {
    EXPECT_EQ(offset, next) << "all blocks after the reader's";
    next += std::ssize(piece);
  }
  EXPECT_EQ(ahead.texts().size(), 5U);
  EXPECT_LT(next, std::ssize(text));
}

}  // namespace
}  // namespace ms::profile::detail
