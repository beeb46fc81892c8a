// Work for several processes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::ckpt {

// Which of `parts` gets each piece: longest first, each to the part that has the least. The same everywhere.
std::vector<int> deal(std::span<const int64_t> bytes, int parts);

}  // namespace ms::ckpt
