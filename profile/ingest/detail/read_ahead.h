// Decompresses ahead of the reader of a stream, in blocks, with several threads.
//
// There is a list of work, not a thread for each kind of it: a thread that is free decompresses the next block if
// nobody does, and reads it ahead (AheadReader) while another thread decompresses the one after it. So text stays in
// the cache of the core that decompressed it: moving it to another takes several times as long as decompressing it. A
// thread that cannot decompress reads ahead the last block that nobody has begun; the first is left to the reader of
// the stream, for whom it is quicker to read a block than to take over what others have read. A reader that would have
// to wait does the same. So no thread waits while there is work, however long its parts take.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "core/affinity.h"
#include "core/error.h"
#include "core/wait.h"
#include "profile/ingest/byte_stream.h"

namespace ms::profile::detail {

class ReadAhead final : public ByteStream {
 public:
  // threads: at least two, the reader's included. Those beyond the second start when there is a reader for them.
  ReadAhead(std::unique_ptr<ByteStream> inner, int threads);
  ~ReadAhead() override;
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  size_t read(char* out, size_t size) override;
  bool lends() const override { return true; }
  std::span<char> lend() override;
  void lend_ahead(AheadReader* reader) override;
  bool help() override;

 private:
  static constexpr size_t kBlockBytes = size_t{256} << 10;  // a thread's blocks fit its second-level cache
  static constexpr size_t kBlocksPerThread = 3;             // in use, read ahead, and filled meanwhile
  struct Block {
    char* begin() { return bytes.get() + kBefore; }
    // Not zeroed: that would take as long as decompressing the first block, and the reader would wait for it.
    std::unique_ptr<char[]> bytes = std::make_unique_for_overwrite<char[]>(kBefore + kBlockBytes + kBehind);
    size_t size = 0;                                                // 0: the end of the stream
    int64_t offset = 0;                                             // of its first byte in the stream
    enum : uint8_t { kUnread, kReadAhead, kRead } state = kUnread;  // kReadAhead: by a thread at this moment
    int thread = 0;                                                 // that filled it last
    std::optional<core::Error> error;
  };
  static constexpr int kReader = 0;  // the thread that calls the public functions

  Block& block(size_t number) { return *filled_blocks_[number % blocks_.size()]; }
  void start_threads();
  Block* block_to_fill(int thread);
  Block* last_unread();
  void fill(Block& block);
  void fill_next(Block& next, std::unique_lock<core::SpinMutex>& lock);
  void read_ahead(Block& block, std::unique_lock<core::SpinMutex>& lock);
  bool work_once(int thread, std::unique_lock<core::SpinMutex>& lock);
  void work(int thread);
  void wait(std::unique_lock<core::SpinMutex>& lock);
  void changed();
  Block& wait_for(size_t number);
  void give_back();

  std::unique_ptr<ByteStream> inner_;
  std::vector<Block> blocks_;
  size_t at_ = 0;       // of the reader: its first unread byte in the block it holds
  bool lent_ = false;   // the bytes from at_ on are lent out
  int64_t offset_ = 0;  // of the next block

  core::SpinMutex mutex_;              // guards the members below
  std::vector<Block*> filled_blocks_;  // a ring, by number
  std::vector<Block*> spare_;          // not in it, and not being filled
  // Numbers of blocks: the first that the reader holds, the last that it has asked for, the next to be filled.
  size_t held_ = 0, asked_ = 0, filled_ = 0;
  bool filling_ = false, ended_ = false, stop_ = false;
  int reading_ahead_ = 0;  // threads
  AheadReader* ahead_ = nullptr;
  std::atomic<uint32_t> changes_{0};  // of these members
  size_t helpers_;                    // how many threads may start
  core::CpuShares cpus_;
  std::vector<std::thread> threads_;
};

}  // namespace ms::profile::detail
