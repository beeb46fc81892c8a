// Submits requests to the kernel's queue with io_uring(7).
#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/io/detail/bulk_engine.h"

namespace ms::core::detail {
namespace {

class UringEngine final : public BulkEngine {
 public:
  explicit UringEngine(const File& file) : file_(file), direct_(File::open_direct(file.path())) {
    if (const int error = io_uring_queue_init(kRequests, &ring_, 0); error != 0) {
      throw Error(ErrorCode::kUnsupported, cat("io_uring_setup: ", std::strerror(-error)));
    }
  }
  ~UringEngine() override { io_uring_queue_exit(&ring_); }

  void submit(std::span<const std::byte> bytes, int64_t offset, BulkWriter::Batch& batch) override {
    std::unique_lock lock(mutex_);
    while (under_way_ == kRequests) await_completions(lock);
    Slot& slot = *std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.batch == nullptr; });
    const std::byte* data = bytes.data();
    if (direct_.is_open() && !is_aligned(data)) {
      if (!slot.copy) slot.copy.emplace();
      std::memcpy(slot.copy->data(), data, bytes.size());
      data = slot.copy->data();
    }
    slot.bytes = {data, bytes.size()};
    slot.offset = offset;
    slot.batch = &batch;
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    MS_CHECK(entry != nullptr, "io_uring: no entry, with ", under_way_, " requests under way");
    io_uring_prep_write(entry, direct_.is_open() ? direct_.fd() : file_.fd(), data, static_cast<unsigned>(bytes.size()),
                        static_cast<uint64_t>(offset));
    io_uring_sqe_set_data(entry, &slot);
    if (const int submitted = io_uring_submit(&ring_); submitted < 0) {
      slot.batch = nullptr;
      throw Error(ErrorCode::kIo, cat("cannot write ", file_.path(), ": io_uring_enter: ", std::strerror(-submitted)));
    }
    ++under_way_;
    ++pending(batch);
  }

  void wait(BulkWriter::Batch& batch) override {
    std::unique_lock lock(mutex_);
    while (pending(batch) > 0) await_completions(lock);
  }

 private:
  struct Slot {
    std::span<const std::byte> bytes;
    int64_t offset = 0;
    BulkWriter::Batch* batch = nullptr;  // null: free
    std::optional<AlignedBlock> copy;
  };

  // Returns after some requests have completed. One thread waits in the kernel without holding the mutex, so that
  // others can submit; the other waiters wait for that thread.
  void await_completions(std::unique_lock<std::mutex>& lock) {
    if (is_awaited_) return settled_.wait(lock);
    is_awaited_ = true;
    lock.unlock();
    io_uring_cqe* done = nullptr;
    int error = 0;
    while ((error = io_uring_wait_cqe(&ring_, &done)) == -EINTR) {
    }
    lock.lock();
    is_awaited_ = false;
    settled_.notify_all();  // they continue when this thread releases the mutex
    MS_CHECK(error == 0, "io_uring_wait_cqe: ", std::strerror(-error));
    do {
      settle(*done);
    } while (io_uring_peek_cqe(&ring_, &done) == 0);
  }

  // Writes here what the kernel did not write, or what is not aligned as the file system requires (EINVAL).
  void settle(io_uring_cqe& done) {
    Slot& slot = *static_cast<Slot*>(io_uring_cqe_get_data(&done));
    const int result = file_ops().ring_result(done.res, slot.bytes.size());
    io_uring_cqe_seen(&ring_, &done);
    BulkWriter::Batch& batch = *std::exchange(slot.batch, nullptr);
    --under_way_;
    --pending(batch);
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EINVAL) {
      if (BulkEngine::error(batch) == 0) BulkEngine::error(batch) = -result;
      return;
    }
    const auto written = static_cast<size_t>(std::max(result, 0));
    if (written == slot.bytes.size()) return;
    try {
      file_.pwrite(slot.bytes.subspan(written), slot.offset + static_cast<int64_t>(written));
    } catch (const Error&) {
      if (BulkEngine::error(batch) == 0) BulkEngine::error(batch) = errno != 0 ? errno : EIO;
    }
  }

  const File& file_;
  File direct_;       // not open if the file system has no O_DIRECT
  std::mutex mutex_;  // guards the members below; one thread at a time uses the ring's completion side without it
  std::condition_variable settled_;
  bool is_awaited_ = false;  // a thread is waiting in the kernel
  io_uring ring_{};
  std::array<Slot, kRequests> slots_;
  int under_way_ = 0;
};

}  // namespace

std::unique_ptr<BulkEngine> make_uring_engine(const File& file) { return std::make_unique<UringEngine>(file); }

}  // namespace ms::core::detail
