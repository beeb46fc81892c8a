// Collective operations (MPI-3.1 chapter 5), blocking and non-blocking, and neighbourhood collectives (chapter 7).
#include <cstdint>

#include "profile/record/preload.h"

namespace {

using namespace ms::profile;

int64_t sum(const int* counts, MPI_Comm comm) {
  int64_t total = 0;
  for (int64_t i = 0, n = counts != nullptr ? members_of(comm) : 0; i < n; ++i) total += counts[i];
  return total;
}

int64_t sum_bytes(const int* counts, const MPI_Datatype* types, MPI_Comm comm) {
  int64_t total = 0;
  for (int64_t i = 0, n = members_of(comm); i < n; ++i) {
    int bytes = 0;
    PMPI_Type_size(types[i], &bytes);
    total += int64_t{bytes} * counts[i];
  }
  return total;
}

int64_t own(const int* counts, MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return counts[rank];
}

// Counts of all members are significant only at the root.
bool is_root(int root, MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return rank == root || root == MPI_ROOT;
}

}  // namespace

#define MS_LIST(...) __VA_ARGS__
// Defines MPI_##op, and the non-blocking MPI_##immediate; the communicator follows `parameters`. facts: the members of
// an MpiOperation, computed from the parameters.
#define MS_MPI_COLLECTIVE(op, immediate, parameters, arguments, facts)                                \
  MS_MPI MPI_##op(MS_LIST parameters, MPI_Comm comm) {                                                \
    return recorded("MPI_" #op, {MS_LIST facts}, [&] { return PMPI_##op(MS_LIST arguments, comm); }); \
  }                                                                                                   \
  MS_MPI MPI_##immediate(MS_LIST parameters, MPI_Comm comm, MPI_Request* made) {                      \
    return posted("MPI_" #immediate, {MS_LIST facts}, made,                                           \
                  [&] { return PMPI_##immediate(MS_LIST arguments, comm, made); });                   \
  }

MS_MPI MPI_Barrier(MPI_Comm comm) {
  return recorded("MPI_Barrier", {"barrier", comm}, [&] { return PMPI_Barrier(comm); });
}
MS_MPI MPI_Ibarrier(MPI_Comm comm, MPI_Request* made) {
  return posted("MPI_Ibarrier", {"barrier", comm}, made, [&] { return PMPI_Ibarrier(comm, made); });
}

// clang-format off: a table
MS_MPI_COLLECTIVE(Bcast, Ibcast, (void* data, int count, MPI_Datatype type, int root), (data, count, type, root),
                  ("broadcast", comm, count, count, type, root))
MS_MPI_COLLECTIVE(Reduce, Ireduce, (const void* in, void* out, int count, MPI_Datatype type, MPI_Op how, int root),
                  (in, out, count, type, how, root), ("reduce", comm, count, count, type, root))
MS_MPI_COLLECTIVE(Allreduce, Iallreduce, (const void* in, void* out, int count, MPI_Datatype type, MPI_Op how),
                  (in, out, count, type, how), ("allreduce", comm, count, count, type))
MS_MPI_COLLECTIVE(Reduce_scatter, Ireduce_scatter,
                  (const void* in, void* out, const int* counts, MPI_Datatype type, MPI_Op how),
                  (in, out, counts, type, how), ("reduce_scatter", comm, sum(counts, comm), own(counts, comm), type))
MS_MPI_COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block,
                  (const void* in, void* out, int count, MPI_Datatype type, MPI_Op how), (in, out, count, type, how),
                  ("reduce_scatter", comm, count* members_of(comm), count, type))
MS_MPI_COLLECTIVE(Scan, Iscan, (const void* in, void* out, int count, MPI_Datatype type, MPI_Op how),
                  (in, out, count, type, how), ("scan", comm, count, count, type))
MS_MPI_COLLECTIVE(Exscan, Iexscan, (const void* in, void* out, int count, MPI_Datatype type, MPI_Op how),
                  (in, out, count, type, how), ("scan", comm, count, count, type))
// Count and type of an MPI_IN_PLACE buffer are ignored by MPI.
MS_MPI_COLLECTIVE(Allgather, Iallgather,
                  (const void* in, int in_count, MPI_Datatype in_type, void* out, int count, MPI_Datatype type),
                  (in, in_count, in_type, out, count, type), ("allgather", comm, count, count* members_of(comm), type))
MS_MPI_COLLECTIVE(Allgatherv, Iallgatherv,
                  (const void* in, int in_count, MPI_Datatype in_type, void* out, const int* counts, const int* places,
                   MPI_Datatype type),
                  (in, in_count, in_type, out, counts, places, type),
                  ("allgather", comm, own(counts, comm), sum(counts, comm), type))
MS_MPI_COLLECTIVE(Gather, Igather,
                  (const void* in, int count, MPI_Datatype type, void* out, int out_count, MPI_Datatype out_type,
                   int root),
                  (in, count, type, out, out_count, out_type, root),
                  ("gather", comm, in == MPI_IN_PLACE ? out_count : count,
                   is_root(root, comm) ? out_count* members_of(comm) : 0, in == MPI_IN_PLACE ? out_type : type, root))
MS_MPI_COLLECTIVE(Gatherv, Igatherv,
                  (const void* in, int count, MPI_Datatype type, void* out, const int* counts, const int* places,
                   MPI_Datatype out_type, int root),
                  (in, count, type, out, counts, places, out_type, root),
                  ("gather", comm, in == MPI_IN_PLACE ? own(counts, comm) : count,
                   is_root(root, comm) ? sum(counts, comm) : 0, in == MPI_IN_PLACE ? out_type : type, root))
MS_MPI_COLLECTIVE(Scatter, Iscatter,
                  (const void* in, int in_count, MPI_Datatype in_type, void* out, int count, MPI_Datatype type,
                   int root),
                  (in, in_count, in_type, out, count, type, root),
                  ("scatter", comm, is_root(root, comm) ? in_count* members_of(comm) : 0,
                   out == MPI_IN_PLACE ? in_count : count, out == MPI_IN_PLACE ? in_type : type, root))
MS_MPI_COLLECTIVE(Scatterv, Iscatterv,
                  (const void* in, const int* counts, const int* places, MPI_Datatype in_type, void* out, int count,
                   MPI_Datatype type, int root),
                  (in, counts, places, in_type, out, count, type, root),
                  ("scatter", comm, is_root(root, comm) ? sum(counts, comm) : 0,
                   out == MPI_IN_PLACE ? own(counts, comm) : count, out == MPI_IN_PLACE ? in_type : type, root))
MS_MPI_COLLECTIVE(Alltoall, Ialltoall,
                  (const void* in, int in_count, MPI_Datatype in_type, void* out, int count, MPI_Datatype type),
                  (in, in_count, in_type, out, count, type),
                  ("alltoall", comm, count* members_of(comm), count* members_of(comm), type))
MS_MPI_COLLECTIVE(Alltoallv, Ialltoallv,
                  (const void* in, const int* in_counts, const int* in_places, MPI_Datatype in_type, void* out,
                   const int* counts, const int* places, MPI_Datatype type),
                  (in, in_counts, in_places, in_type, out, counts, places, type),
                  ("alltoall", comm, sum(in == MPI_IN_PLACE ? counts : in_counts, comm), sum(counts, comm), type))
MS_MPI_COLLECTIVE(Alltoallw, Ialltoallw,
                  (const void* in, const int* in_counts, const int* in_places, const MPI_Datatype* in_types, void* out,
                   const int* counts, const int* places, const MPI_Datatype* types),
                  (in, in_counts, in_places, in_types, out, counts, places, types),
                  ("alltoall", comm,
                   in == MPI_IN_PLACE ? sum_bytes(counts, types, comm) : sum_bytes(in_counts, in_types, comm),
                   sum_bytes(counts, types, comm), MPI_BYTE))

// Neighbours wait for each other, not all for all, so these have no type that is matched across ranks.
MS_MPI_COLLECTIVE(Neighbor_allgather, Ineighbor_allgather,
                  (const void* in, int in_count, MPI_Datatype in_type, void* out, int count, MPI_Datatype type),
                  (in, in_count, in_type, out, count, type), ("neighbor_exchange", comm, in_count, count, in_type))
MS_MPI_COLLECTIVE(Neighbor_allgatherv, Ineighbor_allgatherv,
                  (const void* in, int in_count, MPI_Datatype in_type, void* out, const int* counts, const int* places,
                   MPI_Datatype type),
                  (in, in_count, in_type, out, counts, places, type), ("neighbor_exchange", comm, in_count, 0, in_type))
MS_MPI_COLLECTIVE(Neighbor_alltoall, Ineighbor_alltoall,
                  (const void* in, int in_count, MPI_Datatype in_type, void* out, int count, MPI_Datatype type),
                  (in, in_count, in_type, out, count, type), ("neighbor_exchange", comm, in_count, count, in_type))
MS_MPI_COLLECTIVE(Neighbor_alltoallv, Ineighbor_alltoallv,
                  (const void* in, const int* in_counts, const int* in_places, MPI_Datatype in_type, void* out,
                   const int* counts, const int* places, MPI_Datatype type),
                  (in, in_counts, in_places, in_type, out, counts, places, type), ("neighbor_exchange", comm))
MS_MPI_COLLECTIVE(Neighbor_alltoallw, Ineighbor_alltoallw,
                  (const void* in, const int* in_counts, const MPI_Aint* in_places, const MPI_Datatype* in_types,
                   void* out, const int* counts, const MPI_Aint* places, const MPI_Datatype* types),
                  (in, in_counts, in_places, in_types, out, counts, places, types), ("neighbor_exchange", comm))
// clang-format on
