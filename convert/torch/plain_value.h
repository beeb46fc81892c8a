// Values of a pickle that JSON can hold.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "convert/torch/pickle.h"
#include "convert/torch/pickle_writer.h"

namespace ms::convert {

// None, a truth value, a number, an ASCII text, and lists, tuples and dictionaries (with texts as keys) of them, nested
// at most four deep. Nothing if a part of it is something else.
std::optional<nlohmann::json> plain_value(PickleValue value);

// The other way round; tuples come back as lists.
void write_plain_value(PickleWriter& pickle, const nlohmann::json& value);

}  // namespace ms::convert
