// JSON documents from files that may be damaged or hostile: every lookup says what was missing and where.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ms::core {

// Throws kCorruptData, naming `where` and the byte, unless text is one JSON document. `filter` sees each value when it
// is complete and may drop it (nlohmann::json::parse); what it throws passes through.
nlohmann::json parse_json(std::string_view text, std::string_view where,
                          const nlohmann::json::parser_callback_t& filter = nullptr);

// What is wrong, in the reader's words: "line 1, column 9: syntax error while parsing value - invalid literal". The
// library's own text begins with its identifier and quotes what it last read, which may be any bytes.
std::string json_error_text(const nlohmann::json::exception& error);

// The document on one line; bytes of strings that are not UTF-8, as a path may have them, become U+FFFD.
std::string dump_json(const nlohmann::json& document);

// Members of an object; throw kCorruptData naming `where` and the key when absent or of another type.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key, std::string_view where);
int64_t json_integer(const nlohmann::json& object, const char* key, std::string_view where);
int64_t json_count(const nlohmann::json& object, const char* key, std::string_view where);  // an integer, 0 to 2^62
std::string json_string(const nlohmann::json& object, const char* key, std::string_view where);
const nlohmann::json& json_array(const nlohmann::json& object, const char* key, std::string_view where);
const nlohmann::json& json_object(const nlohmann::json& object, const char* key, std::string_view where);

// 16 lower-case hex digits, and back; parse_hex16 throws kCorruptData naming `where` for anything else.
std::string hex16(uint64_t value);
uint64_t parse_hex16(std::string_view text, std::string_view where);

}  // namespace ms::core
