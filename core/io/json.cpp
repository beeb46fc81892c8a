#include "core/io/json.h"

#include <algorithm>

#include "core/error.h"

template class nlohmann::basic_json<>;
template class nlohmann::detail::serializer<nlohmann::json>;
template class std::vector<nlohmann::json>;

namespace ms::core {
namespace {

[[noreturn]] void refuse(std::string_view where, const char* key, const char* expected, const nlohmann::json* seen) {
  std::string text = seen == nullptr ? "it is absent" : cat("it is ", seen->dump(-1, ' ', true).substr(0, 80));
  throw Error(ErrorCode::kCorruptData, cat(where, ": \"", key, "\": expected ", expected, ", but ", text));
}

// Limits the nesting depth before parsing, because walking a document recurses.
void check_depth(std::string_view text, std::string_view where) {
  constexpr int kMaxDepth = 64;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) throw Error(ErrorCode::kCorruptData, cat(where, ": nested deeper than ", kMaxDepth));
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where,
                          const nlohmann::json::parser_callback_t& filter) {
  check_depth(text, where);
  try {
    return nlohmann::json::parse(text, filter);
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::kCorruptData, cat(where, ": not JSON: ", json_error_text(e)));
  }
}

std::string json_error_text(const nlohmann::json::exception& error) {
  std::string text = error.what();
  if (const size_t id = text.find("] "); text.starts_with("[json.exception.") && id != std::string::npos) {
    text.erase(0, id + 2);
  }
  for (const std::string_view start : {"parse error: ", "parse error at "}) {
    if (text.starts_with(start)) text.erase(0, start.size());
  }
  const std::string_view quote = "; last read: '";
  if (const size_t begin = text.find(quote); begin != std::string::npos) {
    const size_t expected = text.rfind("'; expected ");
    text.erase(begin, expected == std::string::npos || expected < begin ? std::string::npos : expected + 1 - begin);
  }
  text.resize(std::min<size_t>(text.size(), 200));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

std::string dump_json(const nlohmann::json& document) {
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

const nlohmann::json& json_member(const nlohmann::json& object, const char* key, std::string_view where) {
  if (!object.is_object()) throw Error(ErrorCode::kCorruptData, cat(where, ": expected a JSON object"));
  const auto found = object.find(key);
  if (found == object.end()) refuse(where, key, "a value", nullptr);
  return *found;
}

int64_t json_integer(const nlohmann::json& object, const char* key, std::string_view where) {
  const auto& value = json_member(object, key, where);
  if (!value.is_number_integer()) refuse(where, key, "a whole number", &value);
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    refuse(where, key, "a number below 2^63", &value);
  }
  return value.get<int64_t>();
}

int64_t json_count(const nlohmann::json& object, const char* key, std::string_view where) {
  const int64_t value = json_integer(object, key, where);
  if (value < 0 || value > int64_t{1} << 62) refuse(where, key, "a number from 0 to 2^62", &object[key]);
  return value;
}

std::string json_string(const nlohmann::json& object, const char* key, std::string_view where) {
  const auto& value = json_member(object, key, where);
  if (!value.is_string()) refuse(where, key, "a string", &value);
  return value.get<std::string>();
}

const nlohmann::json& json_array(const nlohmann::json& object, const char* key, std::string_view where) {
  const auto& value = json_member(object, key, where);
  if (!value.is_array()) refuse(where, key, "a list", &value);
  return value;
}

const nlohmann::json& json_object(const nlohmann::json& object, const char* key, std::string_view where) {
  const auto& value = json_member(object, key, where);
  if (!value.is_object()) refuse(where, key, "an object", &value);
  return value;
}

std::string hex16(uint64_t value) {
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

uint64_t parse_hex16(std::string_view text, std::string_view where) {
  uint64_t value = 0;
  bool good = text.size() == 16;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    good = good && digit >= 0;
    value = value << 4 | static_cast<uint64_t>(digit & 15);
  }
  if (!good) {
    throw Error(ErrorCode::kCorruptData, cat(where, ": \"", text.substr(0, 40), "\" is not 16 lower-case hex digits"));
  }
  return value;
}

}  // namespace ms::core
