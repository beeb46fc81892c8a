#include "profile/report/short_names.h"

#include <algorithm>
#include <map>

#include "profile/report/table.h"

namespace ms::profile {
namespace {

using Shown = std::map<std::string, std::string>;  // by full name
using Base = std::string (*)(const std::string& name);

// The beginning of the text, and the part around `at`.
std::string cut_around(const std::string& text, size_t at, size_t width) {
  constexpr size_t kBefore = 4;
  if (text.size() <= width) return text;
  const size_t head = width / 3, rest = width - head - 2;  // 2: ".."
  const size_t from = at < kBefore ? 0 : at - kBefore;
  if (from <= head + 2) return text.substr(0, width - 2) + "..";
  if (text.size() - from <= rest) return text.substr(0, head) + ".." + text.substr(text.size() - rest);
  return text.substr(0, head) + ".." + text.substr(from, rest - 2) + "..";
}

// The first position at which the texts differ; npos if they are equal.
size_t first_difference(const std::vector<std::string>& texts) {
  const auto [low, high] = std::minmax_element(texts.begin(), texts.end());  // their common prefix is that of all texts
  const auto [a, b] = std::mismatch(low->begin(), low->end(), high->begin(), high->end());
  return a == low->end() && b == high->end() ? std::string::npos : static_cast<size_t>(a - low->begin());
}

// Cuts names around their first difference, then recursively those that still look equal.
void tell_apart(const std::vector<std::string>& names, Base base, size_t width, Shown& shown) {
  std::vector<std::string> texts;
  for (const std::string& name : names) texts.push_back(base(name));
  const size_t at = first_difference(texts);
  if (at == std::string::npos) return;
  std::map<std::string, std::vector<std::string>> alike;
  for (size_t i = 0; i < names.size(); ++i) {
    shown[names[i]] = cut_around(texts[i], at, width);
    alike[shown[names[i]]].push_back(names[i]);
  }
  for (const auto& [text, group] : alike) {
    if (group.size() > 1 && group.size() < names.size()) tell_apart(group, base, width, shown);
  }
}

std::vector<std::vector<std::string>> that_look_alike(const Shown& shown) {
  std::map<std::string, std::vector<std::string>> alike;
  for (const auto& [name, text] : shown) alike[text].push_back(name);
  std::vector<std::vector<std::string>> out;
  for (auto& [text, names] : alike) {
    if (names.size() > 1) out.push_back(std::move(names));
  }
  return out;
}

std::string whole(const std::string& name) { return shorten(name, name.size()); }  // without control characters
std::string readable(const std::string& name) { return whole(readable_name(name)); }

}  // namespace

std::vector<std::string> distinct_short_names(const std::vector<std::string>& names, size_t width) {
  Shown shown;
  for (const std::string& name : names) {
    if (const auto [entry, added] = shown.try_emplace(name); added) entry->second = shorten(readable_name(name), width);
  }
  for (const Base base : {readable, whole}) {
    for (const auto& group : that_look_alike(shown)) tell_apart(group, base, width, shown);
  }
  for (const auto& group : that_look_alike(shown)) {
    for (const std::string& name : group) shown[name] = whole(name);
  }
  std::vector<std::string> out;
  for (const std::string& name : names) out.push_back(shown[name]);
  return out;
}

}  // namespace ms::profile
