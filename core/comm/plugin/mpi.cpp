// What launcher.h loads where a launcher has started the program.
#include <memory>

#include "core/comm/mpi_transport.h"

// The caller owns it.
extern "C" ms::core::RankSession* msuite_make_mpi_session() {
  return std::make_unique<ms::core::MpiSession>().release();
}
