// A group that has several ranks on each of several machines, in two levels: the ranks of one machine, and those ranks
// that have the same place among theirs, one of each machine. A collective within the machine and one across then send
// a machine's data once to the others, and not once for each of its ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ms::core {

struct TwoLevels {
  std::vector<int> within;           // indices into the group, ascending: ranks on this rank's machine,
  std::vector<int> across;           // and those with this one's place on theirs; this rank is in both
  std::vector<std::vector<int>> at;  // [machine][place]: index into the group
};

// machines: of each rank of the group, any number that names it. own: index of this rank. nullopt unless there are two
// machines at least, with as many ranks each, and more than one.
std::optional<TwoLevels> two_levels_of(std::span<const int> machines, int own);

}  // namespace ms::core
