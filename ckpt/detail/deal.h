// Distributes work among several processes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::ckpt {

// Assigns each piece to one of `parts`: longest first, each to the part with the fewest bytes. Deterministic.
std::vector<int> deal(std::span<const int64_t> bytes, int parts);

}  // namespace ms::ckpt
