// A third-party program for msprof record: it does not use msuite, and calls every kind of MPI function once.
//
//   mpi_program [--slow RANK] [--exit CODE]   RANK computes longer than the others; rank 1 exits with CODE
#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

int rank, size, following, preceding;
double data[64], room[64];

void persistent_messages() {
  MPI_Request requests[2];
  MPI_Send_init(data, 64, MPI_DOUBLE, following, 1, MPI_COMM_WORLD, &requests[0]);
  MPI_Recv_init(room, 64, MPI_DOUBLE, preceding, 1, MPI_COMM_WORLD, &requests[1]);
  for (int round = 0; round < 3; ++round) {
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  }
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}

// Each request is completed by another call; the last one is from any source, with any tag, and half as long as its
// buffer.
void posted_messages() {
  MPI_Request requests[2];
  const auto post = [&](int from, int tag) {
    MPI_Irecv(room, 64, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(data, 32, MPI_DOUBLE, following, 70, MPI_COMM_WORLD, &requests[1]);
  };
  int flag = 0, done = 0, index = 0, indices[2];
  post(preceding, 70);
  MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
  while (flag == 0) MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
  post(preceding, 70);
  for (int i = 0; i < 2; ++i) MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
  post(preceding, 70);
  for (flag = 0; flag == 0;) MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
  post(MPI_ANY_SOURCE, MPI_ANY_TAG);
  for (int left = 2; left > 0; left -= done > 0 ? done : 0) {
    MPI_Testsome(2, requests, &done, indices, MPI_STATUSES_IGNORE);
  }
}

void messages() {
  MPI_Sendrecv(data, 8, MPI_DOUBLE, following, 3, room, 64, MPI_DOUBLE, preceding, 3, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  if (rank == 0) MPI_Send(data, 4, MPI_DOUBLE, 1, 9, MPI_COMM_WORLD);
  if (rank == 1) {
    for (int found = 0; found == 0;) MPI_Iprobe(0, 9, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    MPI_Recv(room, 64, MPI_DOUBLE, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Send(data, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
}

void collectives() {
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, data, 64, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  std::vector<int> counts(static_cast<size_t>(size), 2), places(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) places[static_cast<size_t>(i)] = 2 * i;
  // Counts are significant at the root only.
  MPI_Gatherv(data, 2, MPI_DOUBLE, room, rank == 1 ? counts.data() : nullptr, rank == 1 ? places.data() : nullptr,
              MPI_DOUBLE, 1, MPI_COMM_WORLD);
  MPI_Comm copy, half;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_split(copy, rank % 2, rank, &half);
  MPI_Alltoall(data, 1, MPI_DOUBLE, room, 1, MPI_DOUBLE, copy);
  MPI_Bcast(data, 10, MPI_DOUBLE, 0, half);
  MPI_Comm_free(&half);
  MPI_Comm_free(&copy);
}

}  // namespace

int main(int argc, char** argv) {
  int slow = -1, code = 0, given = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    (std::string_view(argv[i]) == "--slow" ? slow : code) = std::atoi(argv[i + 1]);
  }
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  following = (rank + 1) % size;
  preceding = (rank + size - 1) % size;
  persistent_messages();
  posted_messages();
  messages();
  collectives();
  for (int step = 0; step < 20; ++step) {
    ::usleep(rank == slow ? 20000 : 2000);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return rank == 1 ? code : 0;
}
