// Transport for a world of one rank, which has no peers.
#pragma once

#include "core/comm/transport.h"
#include "core/error.h"

namespace ms::core {

class SingleTransport final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<TransferRequest> isend(const void*, int64_t, int peer, int32_t) override { return refuse(peer); }
  std::unique_ptr<TransferRequest> irecv(void*, int64_t, int peer, int32_t) override { return refuse(peer); }
  std::unique_ptr<Transport> duplicate() override { return std::make_unique<SingleTransport>(); }
  bool any_thread() const override { return true; }

 private:
  [[noreturn]] static std::unique_ptr<TransferRequest> refuse(int peer) {
    throw Error(ErrorCode::kInternal, cat("a world of one rank has no rank ", peer));
  }
};

}  // namespace ms::core
