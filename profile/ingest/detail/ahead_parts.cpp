#include "profile/ingest/detail/ahead_parts.h"

#include <new>
#include <utility>

namespace ms::profile::detail {
namespace {

// A stream of the bytes of one span.
class SpanStream final : public ByteStream {
 public:
  explicit SpanStream(std::span<char> text) : text_(text) {}
  size_t read(char* out, size_t size) override {
    const size_t n = std::string_view(text_.data(), text_.size()).copy(out, size);
    text_ = text_.subspan(n);
    return n;
  }
  bool lends() const override { return true; }
  std::span<char> lend() override { return std::exchange(text_, {}); }

 private:
  std::span<char> text_;
};

}  // namespace

AheadParts::AheadParts(ByteStream& stream, const std::string& path, bool own)
    : stream_(stream), path_(path), own_(own) {
  stream_.lend_ahead(this);
}

AheadParts::~AheadParts() {
  stop_ = true;
  stream_.lend_ahead(nullptr);
}

void AheadParts::read_ahead(std::span<char> text, int64_t offset) {
  Piece* piece = nullptr;  // stays where it is: pieces are removed at the front, and only when they are done
  try {
    const std::lock_guard lock(mutex_);
    piece = &pieces_.emplace_back();
    piece->begin = offset;
    if (pieces_.size() == 1) next_ = offset;
  } catch (const std::bad_alloc&) {
    return;
  }
  SpanStream stream(text);
  std::unique_ptr<ArrayPart> part = read_part(stream, path_, offset, std::ssize(text), own_, stop_);
  {
    const std::lock_guard lock(mutex_);
    piece->part = std::move(part);
    piece->done = true;
  }
  done_.notify_all();
}

std::unique_ptr<ArrayPart> AheadParts::take(int64_t offset) {
  std::unique_lock lock(mutex_);
  std::unique_ptr<ArrayPart> taken;
  while (taken == nullptr && !pieces_.empty() && offset >= pieces_.front().begin) {
    Piece& piece = pieces_.front();
    done_.wait(lock, [&] { return piece.done; });
    if (piece.part != nullptr && piece.part->begin > offset) {
      next_ = piece.part->begin;
      return nullptr;
    }
    if (piece.part != nullptr && piece.part->begin == offset) taken = std::move(piece.part);
    pieces_.pop_front();
  }
  next_ = pieces_.empty() ? INT64_MAX : pieces_.front().begin;
  return taken;
}

}  // namespace ms::profile::detail
