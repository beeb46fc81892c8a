#include "core/comm/delayed_transport.h"

#include <algorithm>
#include <deque>
#include <map>

#include "core/trace/recorder.h"

namespace ms::core {
namespace {

struct Held {
  const void* data;
  int64_t size_bytes;
  int peer;
  int32_t tag;
  int64_t due_ns;
  std::unique_ptr<TransferRequest> sent;
};

class DelayedTransport final : public Transport {
 public:
  DelayedTransport(std::unique_ptr<Transport> inner, LinkDelay delay) : inner_(std::move(inner)), delay_(delay) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  std::unique_ptr<TransferRequest> isend(const void* data, int64_t size_bytes, int peer, int32_t tag) override {
    const int64_t due_ns = arrival_ns(peer, size_bytes);
    auto held = std::make_shared<Held>(Held{data, size_bytes, peer, tag, due_ns, nullptr});
    queue_.push_back(held);
    return std::make_unique<DelayedRequest>(*this, std::move(held));
  }
  std::unique_ptr<TransferRequest> irecv(void* data, int64_t size_bytes, int peer, int32_t tag) override {
    return std::make_unique<DelayedRequest>(*this, inner_->irecv(data, size_bytes, peer, tag));
  }

  int machine_of(int rank) const override { return inner_->machine_of(rank); }
  void share(const std::optional<SharedRange>& own) override { inner_->share(own); }
  bool shares_with(int peer) const override { return inner_->shares_with(peer); }
  int64_t shared_offset(const void* data, int64_t size_bytes) const override {
    return inner_->shared_offset(data, size_bytes);
  }
  std::byte* shared_address(int peer, int64_t offset) const override { return inner_->shared_address(peer, offset); }
  void charge(int peer, int64_t size_bytes) override {
    const double seconds = delay_.bytes_per_s > 0 ? static_cast<double>(size_bytes) / delay_.bytes_per_s : 0.0;
    int64_t& link_free_ns = link_free_ns_[peer];
    link_free_ns = std::max(link_free_ns, trace::now_ns()) + static_cast<int64_t>(seconds * 1e9);
  }

  std::byte* mailbox_memory(int of_rank) const override { return inner_->mailbox_memory(of_rank); }
  int64_t arrival_ns(int peer, int64_t size_bytes) override {
    charge(peer, size_bytes);
    return link_free_ns_[peer] + static_cast<int64_t>(delay_.latency_s * 1e9);
  }

  void check_world() const override { inner_->check_world(); }
  bool peer_lives(int peer) const override { return inner_->peer_lives(peer); }
  std::unique_ptr<Transport> duplicate() override { return make_delayed_transport(inner_->duplicate(), delay_); }
  bool takes_turns() const override { return inner_->takes_turns(); }
  bool any_thread() const override { return inner_->any_thread(); }

  void release_due() {
    const int64_t now = trace::now_ns();
    std::erase_if(queue_, [&](const std::shared_ptr<Held>& held) {
      if (held->due_ns > now) return false;
      held->sent = inner_->isend(held->data, held->size_bytes, held->peer, held->tag);
      return true;
    });
  }

 private:
  class DelayedRequest final : public TransferRequest {
   public:
    DelayedRequest(DelayedTransport& owner, std::shared_ptr<Held> held) : owner_(owner), held_(std::move(held)) {}
    DelayedRequest(DelayedTransport& owner, std::unique_ptr<TransferRequest> receive)
        : owner_(owner), receive_(std::move(receive)) {}
    ~DelayedRequest() override {
      if (held_ != nullptr) std::erase(owner_.queue_, held_);  // the caller's buffer is about to be freed
    }
    bool test() override {
      owner_.release_due();
      if (receive_ != nullptr) return receive_->test();
      return held_->sent != nullptr && held_->sent->test();
    }

   private:
    DelayedTransport& owner_;
    std::shared_ptr<Held> held_;
    std::unique_ptr<TransferRequest> receive_;
  };

  std::unique_ptr<Transport> inner_;
  LinkDelay delay_;
  std::deque<std::shared_ptr<Held>> queue_;
  std::map<int, int64_t> link_free_ns_;
};

}  // namespace

std::unique_ptr<Transport> make_delayed_transport(std::unique_ptr<Transport> inner, LinkDelay delay) {
  return std::make_unique<DelayedTransport>(std::move(inner), delay);
}

}  // namespace ms::core
