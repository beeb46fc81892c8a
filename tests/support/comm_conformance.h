// Conformance tests for every communicator, whatever its transport: run by the thread-rank test and by the MPI test.
#pragma once

#include "core/arena.h"
#include "core/comm/communicator.h"

namespace ms::test {

// Throws core::Error or fails a gtest expectation; call it on all ranks of the endpoint's world.
void check_communicator(core::Endpoint& endpoint);

// The collectives that move data in each other's memory, after endpoint.share_memory() with the range of `arena`: the
// same bits as by messages, without receive buffers; by messages where one rank's buffer is elsewhere.
void check_shared_memory(core::Endpoint& endpoint, core::Arena& arena);

}  // namespace ms::test
