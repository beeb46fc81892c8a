// Lets another thread use a transport that only its own thread may call: MPI without MPI_THREAD_MULTIPLE.
//
// The other thread posts and tests here; the real transfers are posted and tested whenever the transport's own thread
// calls advance() (Endpoint::progress does), so they advance during its waits and between its layers.
#pragma once

#include <cstdint>
#include <memory>

#include "core/comm/transport.h"

namespace ms::core {

namespace detail {
class Pump {
 public:
  virtual ~Pump() = default;
  // Call on the transport's own thread. Never throws: an error is reported by the transfer's test().
  virtual void advance() = 0;
};
class PumpQueue;
}  // namespace detail

// isend, irecv and test() may be called from any thread, one at a time. Incomplete requests and the transport itself
// must be destroyed by the thread that calls advance().
class PumpedTransport final : public Transport {
 public:
  explicit PumpedTransport(std::unique_ptr<Transport> inner);
  ~PumpedTransport() override;
  int rank() const override;
  int size() const override;
  std::unique_ptr<TransferRequest> isend(const void* data, int64_t size_bytes, int peer, int32_t tag) override;
  std::unique_ptr<TransferRequest> irecv(void* data, int64_t size_bytes, int peer, int32_t tag) override;
  bool peer_lives(int peer) const override;

  std::shared_ptr<detail::Pump> pump() const;

 private:
  std::shared_ptr<detail::PumpQueue> queue_;
};

}  // namespace ms::core
