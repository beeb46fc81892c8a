#include "profile/analysis/step_names.h"

#include <charconv>
#include <regex>
#include <string_view>

namespace ms::profile {
namespace {

std::optional<int64_t> whole_number(std::string_view digits) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

}  // namespace

std::vector<bool> step_names(const RankTrace& trace) {
  std::vector<bool> out(trace.names.size());
  for (NameId id = 0; id < trace.names.size(); ++id) {
    const std::string& name = trace.names[id];
    out[id] = trace.step_annotation != nullptr ? std::regex_search(name, *trace.step_annotation)
                                               : step_number(trace, id).has_value();
  }
  return out;
}

std::optional<int64_t> step_number(const RankTrace& trace, NameId name) {
  const std::string& text = trace.names[name];
  if (trace.step_annotation != nullptr) {
    std::smatch match;
    if (!std::regex_search(text, match, *trace.step_annotation) || match.size() < 2) return std::nullopt;
    return whole_number(match[1].str());
  }
  for (const std::string_view prefix : {"ProfilerStep#", "iteration "}) {
    if (text.starts_with(prefix)) return whole_number(std::string_view(text).substr(prefix.size()));
  }
  return std::nullopt;
}

}  // namespace ms::profile
