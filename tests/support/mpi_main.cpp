// main() of tests that run under mpirun: initialises MPI, prints gtest output on rank 0 only, and fails the test if any
// rank fails.
#include <gtest/gtest.h>

#include "core/comm/mpi_transport.h"
#include "core/log.h"
#include "tests/support/mpi_world.h"

int main(int argc, char** argv) {
  ms::core::MpiSession session;
  ms::test::set_mpi_session(&session);
  testing::InitGoogleTest(&argc, argv);
  const int rank = session.transport()->rank();
  ms::core::set_log_rank(rank, false);
  if (rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int result = RUN_ALL_TESTS();
  if (result != 0) session.abort(1);
  return result;
}
