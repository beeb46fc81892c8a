// Moves bytes between the ranks of a world; everything above (collectives, counting, time-outs) is communicator.h, the
// same code over every transport, so that thread ranks in one process compute the same bits as MPI ranks.
//
// Implementations: mpi_transport.h (MPI), single (a world of one needs none of it), tests/support/thread_comm.h
// (threads), delayed_transport.h (any of them behind an injected latency and bandwidth), pumped_transport.h (any of
// them, for another thread than the one that may call it).
#pragma once

#include <cstdint>
#include <memory>

#include "core/error.h"

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

  // Another transport between the same ranks, whose messages never match this one's, nor those of another duplicate.
  // Collective. Must not outlive the world that this one is of.
  virtual std::unique_ptr<Transport> duplicate() {
    throw Error(ErrorCode::kUnsupported, "this transport cannot be duplicated");
  }
  // Whether a duplicate may be used by one thread while this one is used by another.
  virtual bool any_thread() const { return false; }
};

}  // namespace ms::core
