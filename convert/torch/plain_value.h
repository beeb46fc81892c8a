// Converts between pickled values and JSON.
#pragma once

#include <optional>

#include "convert/torch/pickle.h"
#include "convert/torch/pickle_writer.h"
#include "core/io/json.h"

namespace ms::convert {

// Converts None, booleans, numbers, ASCII strings, and lists, tuples and dictionaries (with string keys) of them,
// nested at most four deep. Returns nullopt if any part of the value is something else.
std::optional<nlohmann::json> plain_value(PickleValue value);

// The inverse; tuples come back as lists.
void write_plain_value(PickleWriter& pickle, const nlohmann::json& value);

}  // namespace ms::convert
