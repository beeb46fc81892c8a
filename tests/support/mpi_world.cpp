#include "tests/support/mpi_world.h"

namespace ms::test {
namespace {
core::MpiSession* current = nullptr;
}

void set_mpi_session(core::MpiSession* session) { current = session; }

std::unique_ptr<core::Endpoint> make_mpi_endpoint(double timeout_s) {
  return std::make_unique<core::Endpoint>(current->transport(), core::Endpoint::Options{.timeout_s = timeout_s});
}

}  // namespace ms::test
