// main() of tests that run under mpirun: MPI for the life of the process, gtest output of rank 0 only, and a failure on
// any rank fails the test.
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
