#include "profile/ingest/detail/array_parts.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace ms::profile::detail {

ArrayParts::ArrayParts(const ByteStream& stream, const std::string& path, int64_t begin, int64_t piece_bytes,
                       int threads, bool own)
    : stream_(stream), path_(path), own_(own), cpus_(threads) {
  for (int64_t at = begin + piece_bytes; at < stream.size(); at += piece_bytes) {
    pieces_.push_back({at, std::min(at + piece_bytes, stream.size()), Piece::kFree, nullptr});
  }
  next_ = pieces_.empty() ? INT64_MAX : pieces_[0].begin;
  const auto helpers = std::min(static_cast<size_t>(std::max(threads, 1)) - 1, pieces_.size());
  try {
    for (size_t t = 1; t <= helpers; ++t) {
      threads_.emplace_back([this] { work(); });
      cpus_.place(threads_.back(), static_cast<int>(t));
    }
  } catch (const std::system_error&) {
    // Continue with the threads that were started.
  }
}

ArrayParts::~ArrayParts() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void ArrayParts::work() {
  while (!stop_) {
    const std::optional<size_t> piece = take_free();
    if (!piece) return;
    read(*piece);
  }
}

std::optional<size_t> ArrayParts::take_free() {
  const std::lock_guard lock(mutex_);
  while (free_ < pieces_.size() && pieces_[free_].state != Piece::kFree) ++free_;
  if (free_ == pieces_.size()) return std::nullopt;
  pieces_[free_].state = Piece::kTaken;
  return free_++;
}

void ArrayParts::read(size_t piece) {
  const auto [begin, end] = std::pair(pieces_[piece].begin, pieces_[piece].end);
  std::unique_ptr<ByteStream> bytes;
  try {
    bytes = stream_.from(begin);
  } catch (const core::Error&) {  // the sequential reader meets the same error and reports it
  } catch (const std::bad_alloc&) {
  }
  std::unique_ptr<ArrayPart> part;
  if (bytes != nullptr) part = read_part(*bytes, path_, begin, end - begin, own_, stop_);
  {
    const std::lock_guard lock(mutex_);
    pieces_[piece].part = std::move(part);
    pieces_[piece].state = Piece::kDone;
  }
  done_.notify_all();
}

std::unique_ptr<ArrayPart> ArrayParts::take(int64_t offset) {
  while (first_ < pieces_.size() && offset >= pieces_[first_].begin) {
    Piece& piece = pieces_[first_];
    {
      const std::lock_guard lock(mutex_);
      if (piece.state == Piece::kFree) piece.state = Piece::kDone;  // the caller reads it itself
    }
    const auto is_done = [&] { return piece.state == Piece::kDone; };
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        if (is_done()) break;
      }
      const std::optional<size_t> other = take_free();
      if (!other) break;
      read(*other);
    }
    std::unique_lock lock(mutex_);
    done_.wait(lock, is_done);
    if (piece.part != nullptr && piece.part->begin > offset) {
      next_ = piece.part->begin;
      return nullptr;
    }
    std::unique_ptr<ArrayPart> part = std::move(piece.part);
    ++first_;
    if (part != nullptr && part->begin == offset) {
      next_ = part->end;
      return part;
    }
  }
  next_ = first_ < pieces_.size() ? pieces_[first_].begin : INT64_MAX;
  return nullptr;
}

}  // namespace ms::profile::detail
