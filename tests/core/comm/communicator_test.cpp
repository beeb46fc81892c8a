#include "core/comm/communicator.h"

#include <gtest/gtest.h>

#include "tests/support/comm_conformance.h"
#include "tests/support/mpi_world.h"

TEST(MpiRanks, CommunicatorConforms) {
  auto endpoint = ms::test::make_mpi_endpoint();
  ms::test::check_communicator(*endpoint);
}
