#include "convert/user_family.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "convert/detail/printable.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::ordered_json;

constexpr int64_t kMaxBytes = 1 << 20;
constexpr std::string_view kLayers = "decoder.layers.{layer}.";
constexpr std::string_view kLayer = "{layer}.";

constexpr std::pair<std::string_view, Part> kParts[] = {
    {"whole", Part::kWhole}, {"query", Part::kQuery}, {"key", Part::kKey}, {"value", Part::kValue},
    {"qkv", Part::kQkv},     {"gate", Part::kGate},   {"up", Part::kUp}};

[[noreturn]] void refuse(std::string_view where, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, cat(where, ": ", what));
}

ordered_json read_map(const std::string& path) {
  try {
    return ordered_json::parse(core::read_text(path, kMaxBytes));
  } catch (const nlohmann::json::exception& error) {
    refuse(path, cat("not valid JSON: ", core::json_error_text(error)));
  }
}

// Which parts make the parameter of this canonical name whole.
bool is_whole(const std::multiset<Part>& parts, std::string_view canonical) {
  using Parts = std::multiset<Part>;
  if (canonical.find(".linear_qkv.layer_norm") == std::string_view::npos &&
      canonical.find(".linear_qkv.") != std::string_view::npos) {
    return parts == Parts{Part::kQuery, Part::kKey, Part::kValue} || parts == Parts{Part::kQkv};
  }
  if (canonical.ends_with("linear_fc1.weight") || canonical.ends_with("linear_fc1.bias")) {
    return parts == Parts{Part::kWhole} || parts == Parts{Part::kGate, Part::kUp};
  }
  return parts == Parts{Part::kWhole};
}

}  // namespace

UserFamily::UserFamily(const std::string& path) : UserFamily(read_map(path), path) {}

UserFamily::UserFamily(const ordered_json& map, std::string_view where) {
  if (!map.is_object() || !map.contains("family") || !map["family"].is_string() || !map.contains("tensors") ||
      !map["tensors"].is_object()) {
    refuse(where, R"(expected {"family": "llama", "tensors": {our name: their name, ..}})");
  }
  const Family* known = nullptr;
  try {
    known = &find_family(map["family"].get<std::string>());
  } catch (const Error& error) {
    throw error.within(where);
  }
  family_ = *known;
  for (const auto& item : map["tensors"].items()) add(item.key(), item.value(), where);
  check_complete(*known, where);
  family_.prefix = "";
  family_.before = outside_;
  family_.layer = layer_;
  family_.after = {};
  family_.mtp_key = "";
  family_.mtp_before = family_.mtp_after = {};
}

void UserFamily::add(const std::string& key, const ordered_json& names, std::string_view where) {
  const bool in_layer = key.starts_with(kLayers);
  const std::string_view rest = std::string_view(key).substr(in_layer ? kLayers.size() : 0);
  const auto find = [&](std::span<const NameRule> rules) {
    return std::find_if(rules.begin(), rules.end(), [&](const NameRule& rule) { return rule.canonical == rest; });
  };
  const NameRule* known = nullptr;
  for (const std::span<const NameRule> rules :
       {in_layer ? family_.layer : family_.before, in_layer ? std::span<const NameRule>() : family_.after}) {
    if (const auto found = find(rules); found != rules.end()) known = &*found;
  }
  if (known == nullptr) {
    refuse(where, cat(detail::printable(key), " is no parameter of ", family_.model_type,
                      " models; names are ours: msckpt inspect --tensors shows them"));
  }
  const std::string at = cat(where, ": ", detail::printable(key));
  if (names.is_string()) return add_part(*known, in_layer, Part::kWhole, names.get<std::string>(), false, at);
  if (!names.is_object()) refuse(at, "expected a name, or an object of parts and names");
  const bool transposed = names.contains("transposed") && names["transposed"] == true;
  for (const auto& item : names.items()) {
    if (item.key() == "transposed" && item.value().is_boolean()) continue;
    const auto part =
        std::find_if(std::begin(kParts), std::end(kParts), [&](const auto& each) { return each.first == item.key(); });
    if (part == std::end(kParts) || !item.value().is_string()) {
      refuse(at, cat(detail::printable(item.key()),
                     ": expected whole, query, key, value, qkv, gate or up and a name, or transposed: true"));
    }
    add_part(*known, in_layer, part->second, item.value().get<std::string>(), transposed, at);
  }
}

void UserFamily::add_part(const NameRule& known, bool in_layer, Part part, const std::string& name, bool transposed,
                          const std::string& where) {
  NameRule rule = known;
  rule.part = part;
  rule.transposed = transposed;
  rule.also = "";
  const bool of_expert = known.canonical.find(kExpertPlaceholder) != std::string_view::npos;
  if (of_expert != (name.find(kExpertPlaceholder) != std::string::npos)) {
    refuse(where, cat(detail::printable(name), of_expert ? " has no {expert}" : " has {expert}, and is of none"));
  }
  const size_t at = name.find(kLayer);
  if (in_layer != (at != std::string::npos)) {
    refuse(where, cat(detail::printable(name),
                      in_layer ? " has no {layer} with a dot behind it" : " has {layer}, and is of none"));
  }
  if (!in_layer) {
    rule.hf = keep(name);
    outside_.push_back(rule);
    return;
  }
  const std::string before = name.substr(0, at);
  if (!layer_.empty() && before != family_.layers) {
    refuse(where, cat(detail::printable(name), " has ", detail::printable(before), " before {layer}, others ",
                      detail::printable(family_.layers)));
  }
  if (layer_.empty()) family_.layers = keep(before);
  rule.hf = keep(name.substr(at + kLayer.size()));
  layer_.push_back(rule);
}

void UserFamily::check_complete(const Family& known, std::string_view where) const {
  const auto check = [&](std::span<const NameRule> wanted, const std::vector<NameRule>& given,
                         std::string_view prefix) {
    for (const NameRule& rule : wanted) {
      std::multiset<Part> parts;
      for (const NameRule& own : given) {
        if (own.canonical == rule.canonical) parts.insert(own.part);
      }
      if (is_whole(parts, rule.canonical)) continue;
      refuse(where, cat(parts.empty() ? "no name for " : "not all parts, or too many, of ", prefix, rule.canonical));
    }
  };
  check(known.before, outside_, "");
  check(known.layer, layer_, kLayers);
  check(known.after, outside_, "");
}

}  // namespace ms::convert
