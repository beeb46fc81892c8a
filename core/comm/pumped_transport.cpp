#include "core/comm/pumped_transport.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

#include "core/error.h"

namespace ms::core {
namespace detail {

class PumpQueue final : public Pump {
 public:
  struct Item {
    Item(const void* sent, void* received, int64_t size, int other, int32_t kind)
        : from(sent), to(received), size_bytes(size), peer(other), tag(kind) {}
    const void* from;  // data of a send, otherwise null
    void* to;          // buffer of a receive
    int64_t size_bytes;
    int peer;
    int32_t tag;
    std::unique_ptr<TransferRequest> request;  // set once posted
    std::exception_ptr error;                  // set before done
    std::atomic<bool> done{false};
  };

  explicit PumpQueue(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  Transport& inner() const { return *inner_; }

  void add(std::shared_ptr<Item> item) {
    std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  void remove(const std::shared_ptr<Item>& item) {
    std::lock_guard lock(mutex_);
    std::erase(items_, item);
    item->request.reset();
  }

  void advance() override {
    std::lock_guard lock(mutex_);
    std::erase_if(items_, [&](const std::shared_ptr<Item>& item) {
      try {
        if (item->request == nullptr) {
          item->request = item->from != nullptr ? inner_->isend(item->from, item->size_bytes, item->peer, item->tag)
                                                : inner_->irecv(item->to, item->size_bytes, item->peer, item->tag);
        }
        if (!item->request->test()) return false;
      } catch (...) {
        item->error = std::current_exception();
      }
      item->request.reset();
      item->done.store(true, std::memory_order_release);
      return true;
    });
  }

 private:
  std::unique_ptr<Transport> inner_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Item>> items_;  // in posting order
};

namespace {

class PumpedRequest final : public TransferRequest {
 public:
  PumpedRequest(std::shared_ptr<PumpQueue> queue, std::shared_ptr<PumpQueue::Item> item)
      : queue_(std::move(queue)), item_(std::move(item)) {
    queue_->add(item_);
  }
  ~PumpedRequest() override {
    if (!item_->done.load(std::memory_order_acquire)) queue_->remove(item_);
  }
  bool test() override {
    if (!item_->done.load(std::memory_order_acquire)) return false;
    if (item_->error) std::rethrow_exception(item_->error);
    return true;
  }

 private:
  std::shared_ptr<PumpQueue> queue_;
  std::shared_ptr<PumpQueue::Item> item_;
};

}  // namespace
}  // namespace detail

PumpedTransport::PumpedTransport(std::unique_ptr<Transport> inner)
    : queue_(std::make_shared<detail::PumpQueue>(std::move(inner))) {}

PumpedTransport::~PumpedTransport() = default;

int PumpedTransport::rank() const { return queue_->inner().rank(); }
int PumpedTransport::size() const { return queue_->inner().size(); }
bool PumpedTransport::peer_lives(int peer) const { return queue_->inner().peer_lives(peer); }
std::shared_ptr<detail::Pump> PumpedTransport::pump() const { return queue_; }

std::unique_ptr<TransferRequest> PumpedTransport::isend(const void* data, int64_t size_bytes, int peer, int32_t tag) {
  MS_CHECK(data != nullptr, "a send of nothing");
  return std::make_unique<detail::PumpedRequest>(
      queue_, std::make_shared<detail::PumpQueue::Item>(data, nullptr, size_bytes, peer, tag));
}

std::unique_ptr<TransferRequest> PumpedTransport::irecv(void* data, int64_t size_bytes, int peer, int32_t tag) {
  return std::make_unique<detail::PumpedRequest>(
      queue_, std::make_shared<detail::PumpQueue::Item>(nullptr, data, size_bytes, peer, tag));
}

}  // namespace ms::core
