// The line of --log-straggler: which rank made the others wait, from the waits of communication.
//
// A rank that waits charges the peer whose part came last, which may have waited itself: what is charged to a rank,
// less what it has waited, is the delay that begins with it. The sum over all ranks is 0. No clocks are compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/trace/recorder.h"

namespace ms::train {

class StragglerLog {
 public:
  // Collective, all ranks: what has happened since the last call. count: ranks to name of each kind.
  std::string take_line(core::Communicator& world, int64_t count);

 private:
  int64_t since_ns_ = core::trace::now_ns();
};

// delay_s: by rank, as above. "straggler: rank 2 made the others wait 3.21 s (8.0 % of their time) | waited most: rank
// 0, 1.90 s"; if that is little, "no straggler: ..".
std::string straggler_text(const std::vector<double>& delay_s, double elapsed_s, int64_t count);

}  // namespace ms::train
