// Reads YAML configuration files, which may be damaged or hostile, by libyaml, the parser behind PyYAML.
#pragma once

#include <string_view>

#include "core/io/json.h"

namespace ms::core {

// Returns the file's only document: mappings as objects in the file's order, sequences as arrays, null (~, an empty
// value) and the words for true and false (yes, on, ..: YAML 1.1) as what they are, other scalars as text. Merge keys
// ("<<") are merged. An empty document is null.
//
// Throws kCorruptData, naming `where` and the line: for a syntax error, a key that is given twice, a second document, a
// tag of a program (!!python/..; nothing is constructed), a number that begins with 0, which YAML 1.1 reads as octal,
// nesting deeper than 64, and aliases that expand to more than 10,000 values.
nlohmann::ordered_json parse_yaml(std::string_view text, std::string_view where);

}  // namespace ms::core
