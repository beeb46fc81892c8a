#include "profile/ingest/detail/ahead_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/profile/ingest/detail/nasty_events.h"
#include "tests/support/text_stream.h"

namespace ms::profile::detail {
namespace {

using core::cat;

// Lends a text in blocks, and lends ahead the block after the next before each loan whose number `when` selects.
class AheadStream final : public ByteStream {
 public:
  AheadStream(std::string_view text, size_t block, int when)
      : text_(text), block_(block), when_(when), lent_(text, block, true) {}

  size_t read(char* out, size_t size) override {
    const size_t n = lent_.read(out, size);
    at_ += n;
    return n;
  }
  bool lends() const override { return true; }
  std::span<char> lend() override {
    const size_t ahead = at_ + block_;
    if (reader_ != nullptr && loans_++ % when_ == 0 && ahead < text_.size()) {
      const std::string_view piece = text_.substr(ahead, block_);
      std::vector<char> block(piece.begin(), piece.end());
      block.resize(block.size() + kBehind);
      reader_->expect(static_cast<int64_t>(ahead));
      reader_->read_ahead({block.data(), piece.size()}, static_cast<int64_t>(ahead));
    }
    const std::span<char> loan = lent_.lend();
    at_ += loan.size();
    return loan;
  }
  void lend_ahead(AheadReader* reader) override { reader_ = reader; }

 private:
  std::string_view text_;
  size_t block_;
  int when_, loans_ = 0;
  test::TextStream lent_;
  size_t at_ = 0;
  AheadReader* reader_ = nullptr;
};

TEST(AheadParts, GiveWhatOneReaderReadsWhereverBlocksEnd) {
  std::mt19937_64 random(seed());
  const std::string text = cat("[", nasty_events(random, 400), "]");
  test::TextStream plain(text);
  const std::string expected = everything_read(plain, {1, 0});
  for (const size_t block : {300, 777, 2048, 10'000}) {
    for (const int when : {1, 2, 3}) {
      AheadStream stream(text, block, when);
      EXPECT_EQ(everything_read(stream, {2, 0}), expected)
          << "blocks of " << block << ", ahead of each loan in " << when;
    }
  }
}

TEST(AheadParts, GiveWhatOneReaderReadsOfDamagedText) {
  std::mt19937_64 random(seed());
  for (int i = 0; i < 40; ++i) {
    std::string text = cat("[", nasty_events(random, 60), "]");
    for (int damage = 0; damage < 3; ++damage) text[random() % text.size()] = "{}[]\",\\x"[random() % 8];
    if (i % 4 == 0) text.resize(random() % text.size());
    // In the same blocks, because the text that an issue quotes ends with the block.
    const size_t block = 200 + random() % 2000;
    AheadStream one(text, block, 1), stream(text, block, 1);
    EXPECT_EQ(everything_read(stream, {2, 0}), everything_read(one, {1, 0})) << text;
  }
}

// The window copies such text instead of borrowing it, and then ends inside a block.
TEST(AheadParts, GiveWhatOneReaderReadsOfLongWhiteSpace) {
  std::mt19937_64 random(seed());
  std::string text = "[";
  for (int i = 0; i < 12; ++i) {
    text += cat(i == 0 ? "" : ",", nasty_events(random, 20), ", {\"ph\": \"X\",", std::string(17'000 * (i % 4), ' '),
                "\"name\": \"n\", \"ts\": 5, \"dur\": 1}", std::string(40'000 * (i % 3), '\n'));
  }
  text += "]";
  test::TextStream plain(text);
  const std::string expected = everything_read(plain, {1, 0});
  for (const size_t block : {5000, 20'000, 30'000, 70'000}) {
    for (const int when : {1, 2}) {
      AheadStream stream(text, block, when);
      EXPECT_EQ(everything_read(stream, {2, 0}), expected) << "blocks of " << block;
    }
  }
}

std::string plain_events(int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) {
    text += cat(i == 0 ? "" : ", ", R"({"ph": "X", "name": "n)", i % 10, R"(", "ts": )", i,
                R"(, "dur": 1, "cat": "kernel"})");
  }
  return text + "]";
}

// Reads one piece ahead when it is registered.
class OnePiece final : public ByteStream {
 public:
  OnePiece(std::string& text, size_t from, size_t size) : text_(text), from_(from), size_(size) {}
  size_t read(char*, size_t) override { return 0; }
  void lend_ahead(AheadReader* reader) override {
    if (reader == nullptr) return;
    reader->expect(static_cast<int64_t>(from_));
    reader->read_ahead({text_.data() + from_, size_}, static_cast<int64_t>(from_));
  }

 private:
  std::string& text_;
  size_t from_, size_;
};

TEST(AheadParts, TakeGivesThePartThatBeginsAtTheOffset) {
  std::string text = plain_events(1000);
  text.reserve(text.size() + ByteStream::kBehind);
  const size_t from = text.size() / 2, size = 10'000;
  OnePiece stream(text, from, size);
  const std::string path = "a.json";
  AheadParts parts(stream, path, false);
  EXPECT_EQ(parts.next(), static_cast<int64_t>(from));
  const auto first = static_cast<int64_t>(text.find("{\"ph\"", from));
  EXPECT_EQ(parts.take(static_cast<int64_t>(from)), nullptr) << "the part begins later";
  EXPECT_EQ(parts.next(), first);
  const std::unique_ptr<ArrayPart> part = parts.take(first);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->begin, first);
  EXPECT_LE(part->end, static_cast<int64_t>(from + size));
  EXPECT_EQ(text.compare(static_cast<size_t>(part->end), 5, "{\"ph\""), 0) << "the piece ends inside this event";
  EXPECT_GT(part->columns.events(), 100);
  EXPECT_EQ(parts.next(), INT64_MAX);
}

TEST(AheadParts, TakeDiscardsAPartThatBeganBeforeTheOffset) {
  std::string text = plain_events(1000);
  text.reserve(text.size() + ByteStream::kBehind);
  OnePiece stream(text, 5000, 10'000);
  const std::string path = "a.json";
  AheadParts parts(stream, path, false);
  EXPECT_EQ(parts.take(5200), nullptr);
  EXPECT_EQ(parts.next(), INT64_MAX);
}

}  // namespace
}  // namespace ms::profile::detail
