#include "profile/ingest/rank_of_path.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "core/expression.h"

namespace ms::profile {
namespace {

constexpr size_t kMaxDigits = 9;   // fits an int
constexpr size_t kMaxPath = 4096;  // matching is recursive

std::optional<int> number(std::string_view digits) {
  int rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  const bool whole = error == std::errc() && end == digits.data() + digits.size() && digits.size() <= kMaxDigits;
  return whole && rank >= 0 ? std::optional(rank) : std::nullopt;
}

}  // namespace

RankOfPath::RankOfPath(const std::string& pattern) {
  if (pattern.empty()) return;
  pattern_ =
      core::user_expression(pattern, /*ignore_case=*/true, core::ErrorCode::kInvalidArgument, "--rank-from-name");
}

std::optional<int> RankOfPath::operator()(const std::string& path) const {
  if (pattern_) {
    std::smatch found;
    const std::string text = path.substr(path.size() - std::min(path.size(), kMaxPath));
    if (!std::regex_search(text, found, *pattern_)) return std::nullopt;
    return number(found[found.size() > 1 ? 1 : 0].str());
  }
  std::string name = std::filesystem::path(path).filename().string();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view word : {"rank", "worker"}) {
    size_t at = name.rfind(word);
    if (at == std::string::npos) continue;
    at += word.size();
    if (at < name.size() && (name[at] == '-' || name[at] == '_')) ++at;
    size_t end = at;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    if (end == at) continue;
    if (const auto rank = number(std::string_view(name).substr(at, end - at))) return rank;
  }
  return std::nullopt;
}

}  // namespace ms::profile
