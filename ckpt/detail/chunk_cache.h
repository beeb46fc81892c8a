// An LRU cache of chunks of source files; each chunk is loaded once for all threads that need it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/io/aligned_buffer.h"

namespace ms::ckpt::detail {

class ChunkCache {
 public:
  // capacity: maximum number of chunks, of chunk_bytes each; must exceed the number of threads that hold one.
  ChunkCache(size_t capacity, size_t chunk_bytes) : capacity_(capacity), chunk_bytes_(chunk_bytes) {}

  // A chunk that is not evicted while the pointer is held. A thread holds one at a time.
  using Chunk = std::shared_ptr<const std::byte>;

  // Returns chunk `index`; calls load(out), which fills chunk_bytes, if it is not cached. This caller gets what load
  // throws; others that wait for the same chunk load it themselves.
  Chunk get(uint32_t index, const std::function<void(std::byte* out)>& load);
  bool has(uint32_t index);

 private:
  struct Entry {
    std::shared_ptr<core::AlignedBuffer> buffer;
    bool loaded = false;
    int users = 0;
    std::list<uint32_t>::iterator age;
  };
  Chunk pin(uint32_t index, Entry& entry);
  // An unused buffer; waits for one if necessary. `lock` must hold mutex_.
  std::shared_ptr<core::AlignedBuffer> free_buffer(std::unique_lock<std::mutex>& lock);

  const size_t capacity_, chunk_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<uint32_t, Entry> entries_;
  std::list<uint32_t> by_age_;  // most recently used first
  size_t buffers_ = 0;
  std::vector<std::shared_ptr<core::AlignedBuffer>> free_;
};

}  // namespace ms::ckpt::detail
