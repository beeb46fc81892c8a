// What a wait that has failed says: which rank is to blame, found in the flight recorders of the ranks of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ms::core {

class Endpoint;

struct SilentWait {
  std::string_view operation;
  int64_t sequence = 0;
  std::string group;
  std::vector<int> members;
  std::vector<int> silent;  // world ranks whose part is missing
  uint64_t number = 0;      // in the flight recorder; 0: none
  double waited_s = 0, timeout_s = 0;
  int signal = 0;  // that has come, and ends the wait; 0: the time-out does
};

// The text of the error that ends this wait: "allreduce 17 in group dp_cp [0, 1]: rank [1] silent for 3 s, ..". Where
// the rank at fault is another one, the operation is the one in which that rank is missed. Never throws.
std::string explain_silence(const Endpoint& endpoint, const SilentWait& wait);

// The text of an error about two ranks in different operations. number: of this rank's; seen: "operation 5 of group tp:
// rank 0 is in .., rank 1 in ..". Waits for the records of the other members for a second at most, since two ranks
// alone do not say which of them is wrong. Never throws.
std::string explain_mismatch(const Endpoint& endpoint, uint64_t number, const std::string& seen);

}  // namespace ms::core
