// Moves bytes between the ranks of a world. Collectives, counters and timeouts are in communicator.h and are the same
// code over every transport, so ranks that are threads of one process compute the same bits as MPI ranks.
//
// Implementations: mpi_transport.h (MPI), single_transport.h (one rank), tests/support/thread_comm.h (threads),
// delayed_transport.h (adds latency and a bandwidth limit to any of them), pumped_transport.h (lets another thread use
// any of them).
#pragma once

#include <cstdint>
#include <memory>

#include "core/error.h"

namespace ms::core {

// A posted transfer. Destroying an unfinished transfer cancels it if the transport can.
class TransferRequest {
 public:
  virtual ~TransferRequest() = default;
  virtual bool test() = 0;  // makes progress; true from the time the transfer is complete
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Post without waiting. The buffers must stay valid and unused until the transfer is complete. Messages between two
  // ranks with equal tag match in posting order; a receive whose size differs from its send throws kInternal when it
  // completes. tag: 0 <= tag <= max_tag().
  virtual std::unique_ptr<TransferRequest> isend(const void* data, int64_t size_bytes, int peer, int32_t tag) = 0;
  virtual std::unique_ptr<TransferRequest> irecv(void* data, int64_t size_bytes, int peer, int32_t tag) = 0;
  virtual int32_t max_tag() const { return INT32_MAX; }
  // False if the peer's process is known to have ended. Makes a system call; use it in waits that have lasted long.
  virtual bool peer_lives(int peer) const {
    (void)peer;
    return true;
  }

  // Creates another transport between the same ranks, whose messages never match those of this one or of other
  // duplicates. Collective. Must not outlive the world of this transport.
  virtual std::unique_ptr<Transport> duplicate() {
    throw Error(ErrorCode::kUnsupported, "this transport cannot be duplicated");
  }
  // Whether one thread may use a duplicate while another uses this transport.
  virtual bool any_thread() const { return false; }
};

}  // namespace ms::core
