#include "convert/torch/plain_value.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace ms::convert {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 4;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 32 && c < 127; });
}

std::optional<json> plain(PickleValue value, int depth) {
  switch (value.kind()) {
    case PickleKind::kNone:
      return json();
    case PickleKind::kBool:
      return value.boolean();
    case PickleKind::kInt:
      return value.integer();
    case PickleKind::kFloat:
      return std::isfinite(value.real()) ? std::optional<json>(value.real()) : std::nullopt;
    case PickleKind::kString:
      return is_ascii(value.text()) ? std::optional<json>(std::string(value.text())) : std::nullopt;
    default:
      break;
  }
  if (depth == kMaxDepth) return std::nullopt;
  if (value.is(PickleKind::kList) || value.is(PickleKind::kTuple)) {
    json list = json::array();
    for (const PickleValue item : value.items()) {
      auto one = plain(item, depth + 1);
      if (!one) return std::nullopt;
      list.push_back(std::move(*one));
    }
    return list;
  }
  if (!value.is(PickleKind::kDict)) return std::nullopt;
  json object = json::object();
  for (const auto& [key, item] : value.pairs()) {
    if (!key.is(PickleKind::kString) || !is_ascii(key.text())) return std::nullopt;
    auto one = plain(item, depth + 1);
    if (!one) return std::nullopt;
    object[std::string(key.text())] = std::move(*one);
  }
  return object;
}

}  // namespace

std::optional<json> plain_value(PickleValue value) { return plain(value, 0); }

void write_plain_value(PickleWriter& pickle, const json& value) {
  switch (value.type()) {
    case json::value_t::boolean:
      return pickle.boolean(value.get<bool>());
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
      return pickle.integer(value.get<int64_t>());
    case json::value_t::number_float:
      return pickle.real(value.get<double>());
    case json::value_t::string:
      return pickle.text(value.get<std::string>());
    case json::value_t::array:
      return pickle.list([&] {
        for (const json& item : value) write_plain_value(pickle, item);
      });
    case json::value_t::object:
      return pickle.dict([&] {
        for (const auto& [key, item] : value.items()) {
          pickle.text(key);
          write_plain_value(pickle, item);
        }
      });
    default:
      return pickle.none();
  }
}

}  // namespace ms::convert
