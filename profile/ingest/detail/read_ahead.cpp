#include "profile/ingest/detail/read_ahead.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "core/wait.h"

namespace ms::profile::detail {

ReadAhead::ReadAhead(std::unique_ptr<ByteStream> inner, int threads)
    : inner_(std::move(inner)),
      blocks_(kBlocksPerThread * static_cast<size_t>(threads)),
      filled_blocks_(blocks_.size()),
      helpers_(static_cast<size_t>(threads) - 1),
      cpus_(threads) {
  for (Block& block : blocks_) spare_.push_back(&block);
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
  try {
    while (threads_.size() < wanted) {
      const int thread = static_cast<int>(threads_.size()) + 1;
      threads_.emplace_back([this, thread] { work(thread); });
      cpus_.place(threads_.back(), thread);
    }
  } catch (const std::system_error&) {
    // Continue with the threads that were started: the reader does the rest.
  }
}

// A spare block, rather one that this thread has filled before; null if nothing can be decompressed now.
ReadAhead::Block* ReadAhead::block_to_fill(int thread) {
  if (filling_ || ended_) return nullptr;
  const auto usable = [](const Block* block) { return block->state != Block::kReadAhead; };
  auto found =
      std::ranges::find_if(spare_, [&](const Block* block) { return usable(block) && block->thread == thread; });
  if (found == spare_.end()) found = std::ranges::find_if(spare_, usable);
  if (found == spare_.end()) return nullptr;
  Block* const block = *found;
  spare_.erase(found);
  block->thread = thread;
  return block;
}

// The last block that nobody has begun; null if there is none after the reader's.
ReadAhead::Block* ReadAhead::last_unread() {
  if (ahead_ == nullptr) return nullptr;
  for (size_t number = filled_; number > asked_ + 1; --number) {
    Block& last = block(number - 1);
    if (last.state == Block::kUnread && last.size > 0) return &last;
  }
  return nullptr;
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

void ReadAhead::fill_next(Block& next, std::unique_lock<core::SpinMutex>& lock) {
  filling_ = true;
  lock.unlock();
  fill(next);
  lock.lock();
  filling_ = false;
  ended_ = next.size == 0 || next.error.has_value();
  filled_blocks_[filled_++ % blocks_.size()] = &next;
}

void ReadAhead::read_ahead(Block& block, std::unique_lock<core::SpinMutex>& lock) {
  block.state = Block::kReadAhead;
  ++reading_ahead_;
  AheadReader* const reader = ahead_;
  reader->expect(block.offset);
  changed();
  lock.unlock();
  reader->read_ahead({block.begin(), block.size}, block.offset);
  lock.lock();
  block.state = Block::kRead;
  --reading_ahead_;
  changed();
}

// Does what can be done now and is left to nobody else afterwards; false if there is nothing.
bool ReadAhead::work_once(int thread, std::unique_lock<core::SpinMutex>& lock) {
  Block* next = block_to_fill(thread);
  if (next != nullptr) {
    fill_next(*next, lock);
    changed();
    // The reader reads itself what it decompresses for itself, and the first block, in which its text begins.
    const bool for_reader = filled_ == 1 || (filled_ == asked_ + 1 && thread == kReader);
    if (ahead_ == nullptr || next->size == 0 || for_reader) return true;
  } else if (next = last_unread(); next == nullptr) {
    return false;
  }
  read_ahead(*next, lock);
  return true;
}

void ReadAhead::work(int thread) {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!work_once(thread, lock)) wait(lock);
  }
}

bool ReadAhead::help() {
  std::unique_lock lock(mutex_);
  return work_once(kReader, lock);
}

void ReadAhead::wait(std::unique_lock<core::SpinMutex>& lock) {
  const uint32_t seen = changes_;
  lock.unlock();
  core::wait_while(changes_, seen, kSpinsPerBlock);
  lock.lock();
}

void ReadAhead::changed() {
  ++changes_;
  changes_.notify_all();
}

// Returns the block when it is full. A helper that has filled it may be reading it ahead still (work_once()); nobody
// else begins to.
ReadAhead::Block& ReadAhead::wait_for(size_t number) {
  std::unique_lock lock(mutex_);
  asked_ = number;
  while (filled_ <= number) {
    if (!work_once(kReader, lock)) wait(lock);
  }
  if (block(number).error) throw *block(number).error;
  return block(number);
}

void ReadAhead::give_back() {
  const std::lock_guard lock(mutex_);
  spare_.push_back(&block(held_++));
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
