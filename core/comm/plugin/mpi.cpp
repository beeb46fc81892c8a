// Entry point of the library that launcher.h loads for processes started by a launcher.
#include <memory>

#include "core/comm/mpi_transport.h"

extern "C" const char* msuite_mpi_interface() { return MS_MPI_INTERFACE; }

// The caller owns the result.
extern "C" ms::core::RankSession* msuite_make_mpi_session(ms::core::MpiThreads threads) {
  return std::make_unique<ms::core::MpiSession>(threads).release();
}
