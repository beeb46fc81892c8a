// An MPI program with one slow rank, for what-if answers that are compared with a second run without it.
//
//   slow_rank_program allreduce|pingpong|halo ROUNDS WORK_US SLOW_RANK SLOW_US
//
// In each round a rank "computes" for WORK_US (SLOW_RANK for SLOW_US), then communicates. Computing is sleep until a
// deadline, so its length does not depend on how many ranks share a core. For the same reason waiting ranks sleep
// between polls: with OMPI_MCA_mpi_yield_when_idle=1 Open MPI calls sched_yield() there, which this program replaces.
#include <mpi.h>
#include <sched.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

extern "C" int sched_yield() noexcept {
  const timespec nap{0, 50'000};
  return nanosleep(&nap, nullptr);
}

namespace {

int rank, size;
double sent[1024], received[2][1024];

void compute(long us) {
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += us % 1'000'000 * 1000;
  until.tv_sec += us / 1'000'000 + until.tv_nsec / 1'000'000'000;
  until.tv_nsec %= 1'000'000'000;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

void all_reduce() { MPI_Allreduce(sent, received[0], 1024, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }

// Blocking messages back and forth between ranks 0 and 1.
void ping_pong(long us) {
  const int other = 1 - rank;
  if (rank == 0) {
    compute(us);
    MPI_Send(sent, 1024, MPI_DOUBLE, other, 1, MPI_COMM_WORLD);
    MPI_Recv(received[0], 1024, MPI_DOUBLE, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(received[0], 1024, MPI_DOUBLE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    compute(us);
    MPI_Send(sent, 1024, MPI_DOUBLE, other, 2, MPI_COMM_WORLD);
  }
}

// Exchange with both neighbours on a line of ranks, as in stencil codes.
void halo_exchange() {
  MPI_Request requests[4];
  int open = 0;
  for (const int other : {rank - 1, rank + 1}) {
    if (other < 0 || other >= size) continue;
    MPI_Irecv(received[other > rank], 1024, MPI_DOUBLE, other, 3, MPI_COMM_WORLD, &requests[open++]);
  }
  for (const int other : {rank - 1, rank + 1}) {
    if (other < 0 || other >= size) continue;
    MPI_Isend(sent, 1024, MPI_DOUBLE, other, 3, MPI_COMM_WORLD, &requests[open++]);
  }
  MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: slow_rank_program allreduce|pingpong|halo ROUNDS WORK_US SLOW_RANK SLOW_US\n");
    return 2;
  }
  const std::string_view kind = argv[1];
  const int rounds = std::atoi(argv[2]), slow = std::atoi(argv[4]);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const long us = std::atol(argv[rank == slow ? 5 : 3]);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int round = 0; round < rounds; ++round) {
    if (kind == "pingpong") {
      ping_pong(us);
      continue;
    }
    compute(us);
    kind == "halo" ? halo_exchange() : all_reduce();
  }
  MPI_Finalize();
  return 0;
}
