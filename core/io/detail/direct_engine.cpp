// Threads that call pwrite(2) past the page cache.
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/io/detail/bulk_engine.h"

namespace ms::core::detail {
namespace {

constexpr int kThreads = 4;

class DirectEngine final : public BulkEngine {
 public:
  explicit DirectEngine(const File& file) : file_(file), direct_(File::open_direct(file.path())) {
    if (!direct_.is_open()) throw Error(ErrorCode::kUnsupported, "the file system has no O_DIRECT");
  }
  ~DirectEngine() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(std::span<const std::byte> bytes, int64_t offset, BulkWriter::Batch& batch) override {
    std::unique_lock lock(mutex_);
    while (threads_.size() < kThreads) threads_.emplace_back([this] { run(); });
    changed_.wait(lock, [&] { return queue_.size() < kRequests; });
    queue_.push_back({bytes, offset, &batch});
    ++pending(batch);
    lock.unlock();
    changed_.notify_all();
  }

  void wait(BulkWriter::Batch& batch) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pending(batch) == 0; });
  }

 private:
  struct Request {
    std::span<const std::byte> bytes;
    int64_t offset;
    BulkWriter::Batch* batch;
  };

  void run() {
    const AlignedBlock copy;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Request request = queue_.front();
      queue_.pop_front();
      lock.unlock();
      const int failed = write(request, copy);
      lock.lock();
      if (failed != 0 && error(*request.batch) == 0) error(*request.batch) = failed;
      --pending(*request.batch);
      changed_.notify_all();
    }
  }

  // Returns 0 or an errno. What the first call did not write, or what is not aligned as this file system requires
  // (EINVAL), goes through the page cache.
  int write(const Request& request, const AlignedBlock& copy) const {
    const std::byte* data = request.bytes.data();
    if (!is_aligned(data)) {
      std::memcpy(copy.data(), data, request.bytes.size());
      data = copy.data();
    }
    const ssize_t n = file_ops().pwrite(direct_.fd(), data, request.bytes.size(), request.offset);
    if (n < 0 && errno != EINTR && errno != EAGAIN && errno != EINVAL) return errno;
    const auto written = static_cast<size_t>(n < 0 ? 0 : n);
    if (written == request.bytes.size()) return 0;
    try {
      file_.pwrite(request.bytes.subspan(written), request.offset + static_cast<int64_t>(written));
    } catch (const Error&) {
      return errno != 0 ? errno : EIO;
    }
    return 0;
  }

  const File& file_;
  File direct_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> queue_;
  std::vector<std::thread> threads_;
  bool closing_ = false;
};

}  // namespace

std::unique_ptr<BulkEngine> make_direct_engine(const File& file) { return std::make_unique<DirectEngine>(file); }

}  // namespace ms::core::detail
