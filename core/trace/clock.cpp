#include "core/trace/clock.h"

#include "core/error.h"

namespace ms::core::trace {
namespace {

constexpr int kTag = 13;

TensorView view_of(int64_t& value) { return TensorView(&value, DType::kInt64, {1}); }

}  // namespace

ClockOffset measure_clock_offset(Communicator& comm, int rounds) {
  MS_CHECK(rounds > 0, "rounds ", rounds);
  ClockOffset best{now_ns(), 0, 0};
  int64_t ping = 0, pong = 0;
  if (comm.rank() == 0) {
    for (int peer = 1; peer < comm.size(); ++peer) {
      for (int round = 0; round < rounds; ++round) {
        comm.recv(view_of(ping), peer, kTag);
        pong = now_ns();
        comm.send(view_of(pong), peer, kTag);
      }
    }
    return best;
  }
  int64_t shortest_ns = INT64_MAX;
  for (int round = 0; round < rounds; ++round) {
    const int64_t sent_ns = now_ns();
    ping = sent_ns;
    comm.send(view_of(ping), 0, kTag);
    comm.recv(view_of(pong), 0, kTag);
    const int64_t received_ns = now_ns();
    if (received_ns - sent_ns >= shortest_ns) continue;
    shortest_ns = received_ns - sent_ns;
    const int64_t middle_ns = sent_ns + shortest_ns / 2;
    best = {middle_ns, middle_ns - pong, (shortest_ns + 1) / 2};
  }
  return best;
}

void record_clock_offset(Communicator& comm, Recorder* recorder) {
  if (recorder != nullptr) recorder->mute_this_thread(true);
  const ClockOffset offset = measure_clock_offset(comm);
  if (recorder == nullptr) return;
  recorder->mute_this_thread(false);
  recorder->set_clock_offset(offset.at_ns, offset.offset_ns, offset.error_ns);
}

}  // namespace ms::core::trace
