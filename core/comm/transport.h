// Moves bytes between the ranks of a world; everything above (collectives, counting, time-outs) is communicator.h, the
// same code over every transport, so that thread ranks in one process compute the same bits as MPI ranks.
//
// Implementations: mpi_transport.h (MPI), single (a world of one needs none of it), tests/support/thread_comm.h
// (threads), delayed_transport.h (any of them behind an injected latency and bandwidth).
#pragma once

#include <cstdint>
#include <memory>

namespace ms::core {

// A posted transfer. Destroying an unfinished one cancels it if the transport can.
class TransferRequest {
 public:
  virtual ~TransferRequest() = default;
  virtual bool test() = 0;  // makes progress; true once, and for ever after, the transfer is complete
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Post without waiting. The buffers belong to the transfer until it is complete. Messages between two ranks with
  // equal tag match in the order of posting; a receive shorter or longer than its send throws kInternal when complete.
  // tag: 0 <= tag < 2^31.
  virtual std::unique_ptr<TransferRequest> isend(const void* data, int64_t size_bytes, int peer, int32_t tag) = 0;
  virtual std::unique_ptr<TransferRequest> irecv(void* data, int64_t size_bytes, int peer, int32_t tag) = 0;
  // False if the peer's process is known to have ended. Asks the kernel: for waits that have lasted.
  virtual bool peer_lives(int peer) const {
    (void)peer;
    return true;
  }
};

}  // namespace ms::core
