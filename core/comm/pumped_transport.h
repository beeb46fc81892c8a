// Any transport for a thread that may not call it: MPI without MPI_THREAD_MULTIPLE belongs to one thread.
//
// The other thread posts and tests here; the transfers are posted and tested in earnest whenever the thread they belong
// to calls advance() (Endpoint::progress does), so they move in its waits and between its layers.
#pragma once

#include <cstdint>
#include <memory>

#include "core/comm/transport.h"

namespace ms::core {

namespace detail {
class Pump {
 public:
  virtual ~Pump() = default;
  // On the thread that the transport belongs to; never throws: what goes wrong is told by the transfer's test().
  virtual void advance() = 0;
};
class PumpQueue;
}  // namespace detail

// isend, irecv and test() are for one thread at a time, any; requests that are not complete, and the transport itself,
// are destroyed by the thread that pumps.
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
