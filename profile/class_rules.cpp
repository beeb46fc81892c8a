#include "profile/class_rules.h"

#include "core/error.h"
#include "core/expression.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxName = 1024;  // matching is recursive; a name's class shows near its beginning

DeviceClass class_of_word(const std::string& word, const std::string& where) {
  for (int i = 0; i < kNumDeviceClasses; ++i) {
    if (word == device_class_name(static_cast<DeviceClass>(i))) return static_cast<DeviceClass>(i);
  }
  throw Error(ErrorCode::kCorruptData,
              cat(where, ": class \"", word, "\": expected COMPUTATION, COMMUNICATION or MEMORY"));
}

}  // namespace

std::string_view device_class_name(DeviceClass device_class) {
  constexpr std::string_view kNames[] = {"COMPUTATION", "COMMUNICATION", "MEMORY"};
  return kNames[static_cast<size_t>(device_class)];
}

ClassRules::ClassRules(const std::string& path) {
  const nlohmann::json rules = core::parse_json(core::read_text(path, kMaxFileBytes), path);
  if (!rules.is_array()) throw Error(ErrorCode::kCorruptData, cat(path, ": expected a list of rules"));
  for (size_t i = 0; i < rules.size(); ++i) {
    const std::string where = cat(path, ": rule ", i + 1);
    const std::string name = core::json_string(rules[i], "name", where);
    const DeviceClass device_class = class_of_word(core::json_string(rules[i], "class", where), where);
    rules_.emplace_back(core::user_expression(name, /*ignore_case=*/true, ErrorCode::kCorruptData, where),
                        device_class);
  }
}

std::optional<DeviceClass> ClassRules::find(std::string_view name) const {
  const std::string_view part = name.substr(0, kMaxName);
  for (const auto& [expression, device_class] : rules_) {
    if (std::regex_search(part.begin(), part.end(), expression)) return device_class;
  }
  return std::nullopt;
}

}  // namespace ms::profile
