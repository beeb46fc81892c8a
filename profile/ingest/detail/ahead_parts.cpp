#include "profile/ingest/detail/ahead_parts.h"

#include <new>
#include <utility>

#include "core/wait.h"

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

void AheadParts::expect(int64_t offset) {
  const std::lock_guard lock(mutex_);
  try {
    pieces_.try_emplace(offset);
  } catch (const std::bad_alloc&) {
    return;  // the sequential reader reads this text
  }
  next_ = pieces_.begin()->first;
}

void AheadParts::read_ahead(std::span<char> text, int64_t offset) {
  SpanStream stream(text);
  std::unique_ptr<ArrayPart> part = read_part(stream, path_, offset, std::ssize(text), own_, stop_);
  {
    const std::lock_guard lock(mutex_);
    const auto piece = pieces_.find(offset);
    if (piece == pieces_.end()) return;
    piece->second.part = std::move(part);
    piece->second.done = true;
    ++pieces_done_;
  }
  pieces_done_.notify_all();
}

// Waits until the piece is done. Only the caller removes pieces.
void AheadParts::wait_for(const Piece& piece, std::unique_lock<core::SpinMutex>& lock) {
  while (!piece.done) {
    const uint32_t seen = pieces_done_;
    lock.unlock();
    if (!stream_.help()) core::wait_while(pieces_done_, seen, kSpinsPerBlock);
    lock.lock();
  }
}

std::unique_ptr<ArrayPart> AheadParts::take(int64_t offset) {
  std::unique_lock lock(mutex_);
  std::unique_ptr<ArrayPart> taken;
  while (taken == nullptr && !pieces_.empty() && offset >= pieces_.begin()->first) {
    Piece& piece = pieces_.begin()->second;
    wait_for(piece, lock);
    if (piece.part != nullptr && piece.part->begin > offset) {
      next_ = piece.part->begin;
      return nullptr;
    }
    if (piece.part != nullptr && piece.part->begin == offset) taken = std::move(piece.part);
    pieces_.erase(pieces_.begin());
  }
  next_ = pieces_.empty() ? INT64_MAX : pieces_.begin()->first;
  return taken;
}

}  // namespace ms::profile::detail
