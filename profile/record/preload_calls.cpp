// Initialisation, communicators, one-sided communication and files (MPI-3.1 chapters 6 to 8, 11, 13).
#include <cstdlib>

#include "core/log.h"
#include "profile/record/preload.h"
#include "profile/record/variables.h"

namespace {

using namespace ms::profile;

// Warns at the end of a program that used MPI without any call of the functions here. Open MPI's Fortran functions do
// so: they call the PMPI names directly.
struct UnseenProgram {
  ~UnseenProgram() {
    int initialised = 0;
    if (std::getenv(kPathVariable) == nullptr || seen || PMPI_Initialized(&initialised) != MPI_SUCCESS) return;
    if (initialised == 0) return;
    ms::core::log_warning("msprof.record", "the program did not call MPI_Init by its C name (Fortran?): no trace");
  }
  bool seen = false;
};
UnseenProgram program;

void begin() {
  program.seen = true;
  MpiRecording::instance().begin();
}

// Records `body`, a call by which all members of `parent` create a communicator, and the new communicator.
template <class Body>
int made_by(const char* name, MPI_Comm parent, MPI_Comm* made, Body body) {
  const MpiCall call(name, {"communicator", parent});
  const int result = body();
  if (call.records() && result == MPI_SUCCESS) MpiRecording::instance().add_communicator(parent, *made);
  return result;
}

}  // namespace

MS_MPI MPI_Init(int* count, char*** values) {
  const int result = PMPI_Init(count, values);
  if (result == MPI_SUCCESS) begin();
  return result;
}

MS_MPI MPI_Init_thread(int* count, char*** values, int wanted, int* given) {
  const int result = PMPI_Init_thread(count, values, wanted, given);
  if (result == MPI_SUCCESS) begin();
  return result;
}

MS_MPI MPI_Finalize() {
  { const MpiCall last("MPI_Finalize"); }  // ends the time before it
  MpiRecording::instance().end();
  return PMPI_Finalize();
}

#define MS_MPI_COMMUNICATOR(name, parameters, arguments)                  \
  MS_MPI name parameters {                                                \
    return made_by(#name, comm, made, [&] { return P##name arguments; }); \
  }

MS_MPI_COMMUNICATOR(MPI_Comm_dup, (MPI_Comm comm, MPI_Comm* made), (comm, made))
MS_MPI_COMMUNICATOR(MPI_Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm* made), (comm, info, made))
MS_MPI_COMMUNICATOR(MPI_Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm* made), (comm, group, made))
MS_MPI_COMMUNICATOR(MPI_Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm* made), (comm, color, key, made))
MS_MPI_COMMUNICATOR(MPI_Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made),
                    (comm, type, key, info, made))
MS_MPI_COMMUNICATOR(MPI_Cart_create,
                    (MPI_Comm comm, int n, const int* dims, const int* periods, int reorder, MPI_Comm* made),
                    (comm, n, dims, periods, reorder, made))
MS_MPI_COMMUNICATOR(MPI_Cart_sub, (MPI_Comm comm, const int* remain, MPI_Comm* made), (comm, remain, made))
MS_MPI_COMMUNICATOR(MPI_Graph_create,
                    (MPI_Comm comm, int n, const int* index, const int* edges, int reorder, MPI_Comm* made),
                    (comm, n, index, edges, reorder, made))
MS_MPI_COMMUNICATOR(MPI_Dist_graph_create,
                    (MPI_Comm comm, int n, const int* sources, const int* degrees, const int* to, const int* weights,
                     MPI_Info info, int reorder, MPI_Comm* made),
                    (comm, n, sources, degrees, to, weights, info, reorder, made))
MS_MPI_COMMUNICATOR(MPI_Dist_graph_create_adjacent,
                    (MPI_Comm comm, int n_in, const int* in, const int* in_weights, int n_out, const int* out,
                     const int* out_weights, MPI_Info info, int reorder, MPI_Comm* made),
                    (comm, n_in, in, in_weights, n_out, out, out_weights, info, reorder, made))
MS_MPI_COMMUNICATOR(MPI_Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm* made), (comm, high, made))

MS_MPI MPI_Comm_free(MPI_Comm* comm) {
  const MpiCall call("MPI_Comm_free");
  if (call.records()) MpiRecording::instance().forget_communicator(*comm);
  return PMPI_Comm_free(comm);
}

MS_MPI_CALL(MPI_Win_fence, (int assertion, MPI_Win window), (assertion, window))
MS_MPI_CALL(MPI_Win_start, (MPI_Group group, int assertion, MPI_Win window), (group, assertion, window))
MS_MPI_CALL(MPI_Win_complete, (MPI_Win window), (window))
MS_MPI_CALL(MPI_Win_post, (MPI_Group group, int assertion, MPI_Win window), (group, assertion, window))
MS_MPI_CALL(MPI_Win_wait, (MPI_Win window), (window))
MS_MPI_CALL(MPI_Win_lock, (int type, int rank, int assertion, MPI_Win window), (type, rank, assertion, window))
MS_MPI_CALL(MPI_Win_unlock, (int rank, MPI_Win window), (rank, window))
MS_MPI_CALL(MPI_Win_lock_all, (int assertion, MPI_Win window), (assertion, window))
MS_MPI_CALL(MPI_Win_unlock_all, (MPI_Win window), (window))
MS_MPI_CALL(MPI_Win_flush, (int rank, MPI_Win window), (rank, window))
MS_MPI_CALL(MPI_Win_flush_all, (MPI_Win window), (window))
MS_MPI_CALL(MPI_Win_free, (MPI_Win * window), (window))
MS_MPI_CALL(MPI_Put,
            (const void* data, int count, MPI_Datatype type, int rank, MPI_Aint place, int there_count,
             MPI_Datatype there_type, MPI_Win window),
            (data, count, type, rank, place, there_count, there_type, window))
MS_MPI_CALL(MPI_Get,
            (void* data, int count, MPI_Datatype type, int rank, MPI_Aint place, int there_count,
             MPI_Datatype there_type, MPI_Win window),
            (data, count, type, rank, place, there_count, there_type, window))
MS_MPI_CALL(MPI_Accumulate,
            (const void* data, int count, MPI_Datatype type, int rank, MPI_Aint place, int there_count,
             MPI_Datatype there_type, MPI_Op how, MPI_Win window),
            (data, count, type, rank, place, there_count, there_type, how, window))

MS_MPI_CALL(MPI_File_open, (MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* made),
            (comm, name, mode, info, made))
MS_MPI_CALL(MPI_File_close, (MPI_File * file), (file))
MS_MPI_CALL(MPI_File_sync, (MPI_File file), (file))

#define MS_MPI_FILE(name, data_type)                                                                   \
  MS_MPI_CALL(name, (MPI_File file, data_type data, int count, MPI_Datatype type, MPI_Status* status), \
              (file, data, count, type, status))
#define MS_MPI_FILE_AT(name, data_type)                                                                            \
  MS_MPI_CALL(name,                                                                                                \
              (MPI_File file, MPI_Offset place, data_type data, int count, MPI_Datatype type, MPI_Status* status), \
              (file, place, data, count, type, status))
MS_MPI_FILE(MPI_File_read, void*)
MS_MPI_FILE(MPI_File_read_all, void*)
MS_MPI_FILE(MPI_File_read_shared, void*)
MS_MPI_FILE(MPI_File_read_ordered, void*)
MS_MPI_FILE(MPI_File_write, const void*)
MS_MPI_FILE(MPI_File_write_all, const void*)
MS_MPI_FILE(MPI_File_write_shared, const void*)
MS_MPI_FILE(MPI_File_write_ordered, const void*)
MS_MPI_FILE_AT(MPI_File_read_at, void*)
MS_MPI_FILE_AT(MPI_File_read_at_all, void*)
MS_MPI_FILE_AT(MPI_File_write_at, const void*)
MS_MPI_FILE_AT(MPI_File_write_at_all, const void*)
