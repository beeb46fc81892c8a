#include "core/comm/communicator.h"

#include <gtest/gtest.h>

#include "core/arena.h"
#include "tests/support/comm_conformance.h"
#include "tests/support/mpi_world.h"

TEST(MpiRanks, CommunicatorConforms) {
  auto endpoint = ms::test::make_mpi_endpoint();
  ms::test::check_communicator(*endpoint);
}

TEST(MpiRanks, CollectivesConformInSharedMemory) {
  auto endpoint = ms::test::make_mpi_endpoint();
  ms::core::Arena arena;
  const auto range = arena.share({ms::core::MemoryTag::kParam, ms::core::MemoryTag::kGrad});
  ASSERT_TRUE(range.has_value());
  endpoint->share_memory(range);
  ms::test::check_shared_memory(*endpoint, arena);
}
