// Moves bytes between the ranks of a world. Collectives, counters and timeouts are in communicator.h and are the same
// code over every transport, so ranks that are threads of one process compute the same bits as MPI ranks.
//
// Implementations: mpi_transport.h (MPI), single_transport.h (one rank), tests/support/thread_comm.h (threads),
// delayed_transport.h (adds latency and a bandwidth limit to any of them), pumped_transport.h (lets another thread use
// any of them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/block_heap.h"
#include "core/error.h"

namespace ms::core {

inline constexpr int64_t kMailboxBytes = int64_t{10} << 20;  // of which only what is used takes memory

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

  // A number of the machine that a rank is on, the same for all its ranks, as far as this one can know.
  virtual int machine_of(int rank) const {
    static_cast<void>(rank);
    return 0;
  }

  // Memory that ranks of one machine address without messages: of each rank the range that it has given share(), which
  // may be empty: then there are mailboxes only.
  // Collective; not of duplicates. Without effect between ranks of which one cannot map the other's file.
  virtual void share(const std::optional<SharedRange>& own) { static_cast<void>(own); }
  // Symmetric.
  virtual bool shares_with(int peer) const {
    static_cast<void>(peer);
    return false;
  }
  // Where data lies in this rank's range, for a message to a peer; -1: outside of it.
  virtual int64_t shared_offset(const void* data, int64_t size_bytes) const {
    static_cast<void>(data), static_cast<void>(size_bytes);
    return -1;
  }
  // The address here of what lies at `offset` of a peer's range.
  virtual std::byte* shared_address(int peer, int64_t offset) const {
    static_cast<void>(peer), static_cast<void>(offset);
    return nullptr;
  }
  // Bytes that were moved to or from the peer without a message: a transport with a delay delays the next message to
  // it as if it had carried them.
  virtual void charge(int peer, int64_t size_bytes) { static_cast<void>(peer), static_cast<void>(size_bytes); }

  // Memory of a rank, this one's too, that it and all ranks with which it shares memory read and write at any time:
  // kMailboxBytes that are zero after share(). null where there is none.
  virtual std::byte* mailbox_memory(int of_rank) const {
    static_cast<void>(of_rank);
    return nullptr;
  }
  // When so many bytes that a peer reads there have reached it (trace::now_ns()); 0: at once.
  virtual int64_t arrival_ns(int peer, int64_t size_bytes) {
    static_cast<void>(peer), static_cast<void>(size_bytes);
    return 0;
  }
  // Throws if the world has failed; called by waits that have lasted for some time.
  virtual void check_world() const {}

  // Creates another transport between the same ranks, whose messages never match those of this one or of other
  // duplicates. Collective. Must not outlive the world of this transport.
  virtual std::unique_ptr<Transport> duplicate() {
    throw Error(ErrorCode::kUnsupported, "this transport cannot be duplicated");
  }
  // Whether several threads may use it, one at a time.
  virtual bool takes_turns() const { return false; }
  // Whether one thread may use a duplicate while another uses this transport.
  virtual bool any_thread() const { return false; }
};

}  // namespace ms::core
