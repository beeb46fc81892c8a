// Reads JSON documents that may be damaged or hostile: every failed lookup says what was missing and where.
//
// Include this header for nlohmann::json too: its member functions are then compiled once, in json.cpp, and not in each
// file that uses them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::detail::serializer<nlohmann::json>;
extern template class std::vector<nlohmann::json>;

namespace ms::core {

// Throws kCorruptData, naming `where` and the byte, unless text is one JSON document. `filter` is called for each
// complete value and may drop it (nlohmann::json::parse); its exceptions propagate.
nlohmann::json parse_json(std::string_view text, std::string_view where,
                          const nlohmann::json::parser_callback_t& filter = nullptr);

// The error in readable form: "line 1, column 9: syntax error while parsing value - invalid literal". The library's own
// text begins with its error identifier and quotes what it last read, which may be any bytes.
std::string json_error_text(const nlohmann::json::exception& error);

// The document on one line; string bytes that are not UTF-8, as paths may contain, become U+FFFD.
std::string dump_json(const nlohmann::json& document);

// Members of an object; throw kCorruptData naming `where` and the key if it is absent or has another type.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key, std::string_view where);
int64_t json_integer(const nlohmann::json& object, const char* key, std::string_view where);
int64_t json_count(const nlohmann::json& object, const char* key, std::string_view where);  // an integer, 0 to 2^62
std::string json_string(const nlohmann::json& object, const char* key, std::string_view where);
const nlohmann::json& json_array(const nlohmann::json& object, const char* key, std::string_view where);
const nlohmann::json& json_object(const nlohmann::json& object, const char* key, std::string_view where);

// Formats as 16 lower-case hex digits; parse_hex16 is the inverse and throws kCorruptData naming `where` for anything
// else.
std::string hex16(uint64_t value);
uint64_t parse_hex16(std::string_view text, std::string_view where);

}  // namespace ms::core
