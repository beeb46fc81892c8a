// Macros and helpers for the definitions of MPI functions in the preload library of `msprof record`, which replace the
// real ones.
#pragma once

#include <mpi.h>

#include "profile/record/mpi_recording.h"

// Begins the definition of an MPI function.
#define MS_MPI extern "C" __attribute__((visibility("default"))) int

// A function that moves no data by itself: records its name and time.
#define MS_MPI_CALL(name, parameters, arguments)                                \
  MS_MPI name parameters {                                                      \
    return ms::profile::recorded(#name, {}, [&] { return P##name arguments; }); \
  }

namespace ms::profile {

template <class Body>
int recorded(const char* name, const MpiOperation& operation, Body body) {
  const MpiCall call(name, operation);
  return body();
}

// The same for a call that creates a request. persistent: it does not start before MPI_Start.
template <class Body>
int posted(const char* name, MpiOperation operation, MPI_Request* request, Body body, bool persistent = false) {
  const MpiCall call(name);
  if (!call.records()) return body();
  MpiRecording::instance().number(operation);
  const int result = body();
  if (result == MPI_SUCCESS) MpiRecording::instance().post(*request, operation, call.start_ns(), persistent);
  return result;
}

inline int64_t members_of(MPI_Comm comm) {
  int size = 0, has_other_side = 0;
  PMPI_Comm_test_inter(comm, &has_other_side);
  has_other_side != 0 ? PMPI_Comm_remote_size(comm, &size) : PMPI_Comm_size(comm, &size);
  return size;
}

}  // namespace ms::profile
