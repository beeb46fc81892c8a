// The MPI world of tests with RANKS in their ms_test line.
#pragma once

#include <memory>

#include "core/comm/communicator.h"
#include "core/comm/mpi_transport.h"

namespace ms::test {

void set_mpi_session(core::MpiSession* session);
std::unique_ptr<core::Endpoint> make_mpi_endpoint(double timeout_s = 60);

}  // namespace ms::test
