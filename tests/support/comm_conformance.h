// Conformance tests for every communicator, whatever its transport: run by the thread-rank test and by the MPI test.
#pragma once

#include "core/comm/communicator.h"

namespace ms::test {

// Throws core::Error or fails a gtest expectation; call it on all ranks of the endpoint's world.
void check_communicator(core::Endpoint& endpoint);

}  // namespace ms::test
