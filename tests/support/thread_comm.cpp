#include "tests/support/thread_comm.h"

#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "core/comm/agree.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::test {
namespace {

using Key = std::tuple<int, int, int, int32_t>;  // channel, source, destination, tag

struct MessageQueue {  // of a key
  std::deque<std::vector<char>> messages;
  int64_t posted = 0, served = 0;  // receives, which complete in posting order
};

struct ThreadWorld {
  explicit ThreadWorld(int ranks) : size(ranks) {}
  ~ThreadWorld() {
    if (mailboxes != nullptr) ::munmap(mailboxes, static_cast<size_t>(size * core::kMailboxBytes));
  }
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;
  int size;
  std::byte* mailboxes = nullptr;  // of all ranks, once one shares memory
  std::mutex mutex;
  std::map<Key, MessageQueue> queues;
  // Sends and completed receives. A rank that polls locks the mutex only if there was one since its last poll: if all
  // locked it in every poll, those that send would wait for it.
  std::atomic<int64_t> changes{0};
  std::atomic<bool> failed{false};
};

class Sent final : public core::TransferRequest {
 public:
  bool test() override { return true; }
};

class Receive final : public core::TransferRequest {
 public:
  Receive(ThreadWorld& world, const Key& key, void* data, int64_t size_bytes)
      : world_(world), data_(data), size_(size_bytes) {
    std::lock_guard lock(world_.mutex);
    queue_ = &world_.queues[key];
    ticket_ = queue_->posted++;
  }
  bool test() override {
    if (done_) return true;
    if (!world_.failed && world_.changes == seen_changes_) return false;
    std::lock_guard lock(world_.mutex);
    seen_changes_ = world_.changes;
    auto& messages = queue_->messages;
    if (queue_->served != ticket_ || messages.empty()) {  // messages sent before a rank failed still arrive
      if (world_.failed) throw core::Error(core::ErrorCode::kPeerFailed, "another thread rank has failed");
      return false;
    }
    MS_CHECK(static_cast<int64_t>(messages.front().size()) == size_, "message of ", messages.front().size(),
             " bytes, expected ", size_);
    if (size_ > 0) std::memcpy(data_, messages.front().data(), messages.front().size());
    messages.pop_front();
    ++queue_->served;
    ++world_.changes;
    done_ = true;
    return true;
  }

 private:
  ThreadWorld& world_;
  MessageQueue* queue_;  // in world_
  void* data_;
  int64_t size_;
  int64_t ticket_ = 0, seen_changes_ = -1;
  bool done_ = false;
};

class ThreadTransport final : public core::Transport {
 public:
  ThreadTransport(ThreadWorld& world, int rank, int channel = 0) : world_(world), rank_(rank), channel_(channel) {}
  int rank() const override { return rank_; }
  int size() const override { return world_.size; }
  std::unique_ptr<core::TransferRequest> isend(const void* data, int64_t size_bytes, int peer, int32_t tag) override {
    const char* const bytes = static_cast<const char*>(data);
    std::vector<char> message(bytes, bytes + size_bytes);
    std::lock_guard lock(world_.mutex);
    world_.queues[{channel_, rank_, peer, tag}].messages.push_back(std::move(message));
    ++world_.changes;
    return std::make_unique<Sent>();
  }
  std::unique_ptr<core::TransferRequest> irecv(void* data, int64_t size_bytes, int peer, int32_t tag) override {
    return std::make_unique<Receive>(world_, Key{channel_, peer, rank_, tag}, data, size_bytes);
  }
  std::unique_ptr<core::Transport> duplicate() override {
    return std::make_unique<ThreadTransport>(world_, rank_, kDuplicates * channel_ + ++duplicates_);
  }
  bool takes_turns() const override { return true; }
  bool any_thread() const override { return true; }
  // All see one address space: an address is its own offset.
  void share(const std::optional<core::SharedRange>& own) override {
    own_ = own;
    if (!own) return;
    std::lock_guard lock(world_.mutex);
    if (world_.mailboxes != nullptr) return;
    void* const memory = ::mmap(nullptr, static_cast<size_t>(size() * core::kMailboxBytes), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MS_CHECK(memory != MAP_FAILED, "no memory for mailboxes");
    world_.mailboxes = static_cast<std::byte*>(memory);
  }
  std::byte* mailbox_memory(int of_rank) const override {
    return own_ ? world_.mailboxes + of_rank * core::kMailboxBytes : nullptr;
  }
  void check_world() const override {
    if (world_.failed) throw core::Error(core::ErrorCode::kPeerFailed, "another thread rank has failed");
  }
  bool shares_with(int) const override { return own_.has_value(); }
  int64_t shared_offset(const void* data, int64_t size_bytes) const override {
    if (!own_) return -1;
    const auto at = reinterpret_cast<int64_t>(data), begin = reinterpret_cast<int64_t>(own_->begin);
    return at >= begin && at + size_bytes <= begin + own_->size_bytes ? at : -1;
  }
  std::byte* shared_address(int, int64_t offset) const override { return reinterpret_cast<std::byte*>(offset); }

 private:
  static constexpr int kDuplicates = 16;  // maximum, of one transport
  ThreadWorld& world_;
  int rank_;
  int channel_;
  std::optional<core::SharedRange> own_;
  int duplicates_ = 0;
};

}  // namespace

void run_thread_ranks(int ranks, const std::function<void(core::Endpoint&)>& body, double timeout_s,
                      core::LinkDelay delay, const WrapTransport& wrap, std::span<core::trace::Recorder> recorders,
                      const SetOptions& set) {
  ThreadWorld world(ranks);
  std::mutex error_mutex;
  std::exception_ptr first, peer_failure;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      core::set_log_rank(rank, false);
      try {
        std::unique_ptr<core::Transport> transport = std::make_unique<ThreadTransport>(world, rank);
        if (delay.latency_s > 0 || delay.bytes_per_s > 0) {
          transport = core::make_delayed_transport(std::move(transport), delay);
        }
        if (wrap) transport = wrap(std::move(transport));
        core::trace::Recorder* recorder = recorders.empty() ? nullptr : &recorders[static_cast<size_t>(rank)];
        core::Endpoint::Options options{.timeout_s = timeout_s, .recorder = recorder};
        if (set) set(rank, options);
        core::Endpoint endpoint(std::move(transport), options);
        body(endpoint);
      } catch (const core::AgreedError&) {  // the other ranks throw it too, after receiving the vote
        std::lock_guard lock(error_mutex);
        if (!first) first = std::current_exception();
      } catch (const core::Error& e) {
        std::lock_guard lock(error_mutex);
        auto& slot = e.code() == core::ErrorCode::kPeerFailed ? peer_failure : first;
        if (!slot) slot = std::current_exception();
        world.failed = true;
      } catch (...) {
        std::lock_guard lock(error_mutex);
        if (!first) first = std::current_exception();
        world.failed = true;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  if (peer_failure) std::rethrow_exception(peer_failure);
}

}  // namespace ms::test
