// Kineto's "Input Dims": the shapes of an operator's inputs, as JSON text.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ms::profile {

using Dims = std::vector<int64_t>;

// "[[32, 64], [64, 8], [], []]" as lists, whatever white space stands between. Nothing if it is anything else, as lists
// of tensors and unbalanced brackets are, or if a size is above 2^31.
std::optional<std::vector<Dims>> parse_dims(std::string_view text);

}  // namespace ms::profile
