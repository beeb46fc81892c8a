// Parses Kineto's "Input Dims": the shapes of an operator's inputs, as JSON text.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ms::profile {

using Dims = std::vector<int64_t>;

// Parses "[[32, 64], [64, 8], [], []]" with any white space. Nullopt for anything else, such as lists of tensors or
// unbalanced brackets, and for sizes above 2^31.
std::optional<std::vector<Dims>> parse_dims(std::string_view text);

}  // namespace ms::profile
