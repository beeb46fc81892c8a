#include "profile/ingest/detail/read_ahead.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "core/affinity.h"
#include "core/wait.h"

namespace ms::profile::detail {

ReadAhead::ReadAhead(std::unique_ptr<ByteStream> inner, int threads)
    : inner_(std::move(inner)),
      blocks_(kBlocksPerThread * static_cast<size_t>(threads)),
      helpers_(static_cast<size_t>(threads) - 1) {
  start_threads();
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::start_threads() {
  const size_t wanted = ahead_ == nullptr ? 1 : helpers_;
  const int here = ::sched_getcpu();
  try {
    while (threads_.size() < wanted) {
      threads_.emplace_back([this, here, steps = static_cast<int>(threads_.size()) + 1] {
        core::continue_apart(here, steps);
        work();
      });
    }
  } catch (const std::system_error&) {
    // Continue with the threads that were started: the reader does the rest.
  }
}

// The last block that nobody has begun; null if there is none after the reader's.
ReadAhead::Block* ReadAhead::last_unread() {
  for (size_t number = filled_; number > asked_ + 1; --number) {
    Block& last = block(number - 1);
    if (last.state == Block::kUnread && last.size > 0) return &last;
  }
  return nullptr;
}

// What can be done now and is left to nobody else afterwards. Decompressing comes first: the other threads depend on
// it.
ReadAhead::Work ReadAhead::next_work() {
  if (!filling_ && !ended_ && filled_ - held_ < blocks_.size() && block(filled_).state != Block::kReadAhead) {
    filling_ = true;
    return {Work::kFill, &block(filled_), nullptr};
  }
  Block* const next = ahead_ == nullptr ? nullptr : last_unread();
  if (next == nullptr) return {};
  next->state = Block::kReadAhead;
  ++reading_ahead_;
  ahead_->expect(next->offset);
  return {Work::kReadAhead, next, ahead_};
}

void ReadAhead::finish(const Work& work) {
  if (work.kind == Work::kFill) {
    filling_ = false;
    ended_ = work.block->size == 0 || work.block->error.has_value();
    ++filled_;
  } else {
    work.block->state = Block::kRead;
    --reading_ahead_;
  }
  changed();
}

void ReadAhead::fill(Block& block) {
  block.size = 0;
  block.state = Block::kUnread;
  block.offset = offset_;
  try {
    while (block.size < kBlockBytes) {
      const size_t got = inner_->read(block.begin() + block.size, kBlockBytes - block.size);
      if (got == 0) break;
      block.size += got;
    }
  } catch (const core::Error& e) {
    block.error = e;
  } catch (const std::bad_alloc&) {
    block.error = core::Error(core::ErrorCode::kOutOfMemory, "decompress");
  }
  offset_ += static_cast<int64_t>(block.size);
}

bool ReadAhead::work_once(std::unique_lock<std::mutex>& lock) {
  const Work work = next_work();
  if (work.kind == Work::kNone) return false;
  lock.unlock();
  if (work.kind == Work::kFill) {
    fill(*work.block);
  } else {
    work.reader->read_ahead({work.block->begin(), work.block->size}, work.block->offset);
  }
  lock.lock();
  finish(work);
  return true;
}

void ReadAhead::work() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!work_once(lock)) wait(lock);
  }
}

bool ReadAhead::help() {
  std::unique_lock lock(mutex_);
  return work_once(lock);
}

void ReadAhead::wait(std::unique_lock<std::mutex>& lock) {
  const uint32_t seen = changes_;
  lock.unlock();
  core::wait_while(changes_, seen, kSpinsPerBlock);
  lock.lock();
}

void ReadAhead::changed() {
  ++changes_;
  changes_.notify_all();
}

// Returns the block when it is full, as the reader's: nobody else begins to read it.
ReadAhead::Block& ReadAhead::wait_for(size_t number) {
  std::unique_lock lock(mutex_);
  asked_ = number;
  while (filled_ <= number) {
    if (!work_once(lock)) wait(lock);
  }
  if (block(number).error) throw *block(number).error;
  return block(number);
}

void ReadAhead::give_back() {
  const std::lock_guard lock(mutex_);
  ++held_;
  at_ = 0;
  lent_ = false;
  changed();
}

size_t ReadAhead::read(char* out, size_t size) {
  if (lent_) give_back();
  Block& block = wait_for(held_);
  const size_t n = std::min(size, block.size - at_);
  if (n > 0) std::memcpy(out, block.begin() + at_, n);
  at_ += n;
  if (at_ == block.size && block.size > 0) give_back();
  return n;
}

std::span<char> ReadAhead::lend() {
  Block& block = wait_for(lent_ ? held_ + 1 : held_);
  if (block.size == 0) return {};
  if (lent_) give_back();
  lent_ = true;
  return {block.begin() + at_, block.size - at_};
}

void ReadAhead::lend_ahead(AheadReader* reader) {
  std::unique_lock lock(mutex_);
  ahead_ = reader;
  if (reader != nullptr) start_threads();
  changed();
  while (reading_ahead_ > 0) wait(lock);
}

}  // namespace ms::profile::detail
