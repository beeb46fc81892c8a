#include "ckpt/detail/chunk_cache.h"

#include <algorithm>

namespace ms::ckpt::detail {

bool ChunkCache::has(uint32_t index) {
  std::lock_guard lock(mutex_);
  return entries_.count(index) != 0;
}

ChunkCache::Chunk ChunkCache::pin(uint32_t index, Entry& entry) {
  ++entry.users;
  by_age_.splice(by_age_.begin(), by_age_, entry.age);
  // The deleter unpins the chunk; the buffer stays in the cache.
  return {entry.buffer->data(), [this, index, held = entry.buffer](const std::byte*) {
            std::lock_guard lock(mutex_);
            --entries_.at(index).users;
            changed_.notify_all();
          }};
}

std::shared_ptr<core::AlignedBuffer> ChunkCache::free_buffer(std::unique_lock<std::mutex>& lock) {
  while (true) {
    if (!free_.empty()) {
      auto buffer = std::move(free_.back());
      free_.pop_back();
      return buffer;
    }
    if (buffers_ < capacity_) {
      ++buffers_;
      return std::make_shared<core::AlignedBuffer>(chunk_bytes_);
    }
    const auto oldest =
        std::find_if(by_age_.rbegin(), by_age_.rend(), [&](uint32_t index) { return entries_.at(index).users == 0; });
    if (oldest != by_age_.rend()) {
      const uint32_t index = *oldest;
      auto buffer = std::move(entries_.at(index).buffer);
      by_age_.erase(entries_.at(index).age);
      entries_.erase(index);
      return buffer;
    }
    changed_.wait(lock);
  }
}

ChunkCache::Chunk ChunkCache::get(uint32_t index, const std::function<void(std::byte* out)>& load) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto found = entries_.find(index);
    if (found != entries_.end()) {
      if (found->second.loaded) return pin(index, found->second);
      changed_.wait(lock);
      continue;
    }
    auto buffer = free_buffer(lock);
    if (entries_.count(index) != 0) {  // another thread started loading it while this one waited
      free_.push_back(std::move(buffer));
      continue;
    }
    by_age_.push_front(index);
    Entry& entry = entries_[index];
    entry = {std::move(buffer), false, 1, by_age_.begin()};
    std::byte* out = entry.buffer->data();
    lock.unlock();
    std::exception_ptr error;
    try {
      load(out);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    Entry& now = entries_.at(index);
    changed_.notify_all();
    if (error != nullptr) {
      free_.push_back(std::move(now.buffer));
      by_age_.erase(now.age);
      entries_.erase(index);
      std::rethrow_exception(error);
    }
    now.loaded = true;
    now.users = 0;
    return pin(index, now);
  }
}

}  // namespace ms::ckpt::detail
