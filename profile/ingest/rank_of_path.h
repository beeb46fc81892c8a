// Which rank the name of a file speaks of (traces.md 2).
#pragma once

#include <optional>
#include <regex>
#include <string>

namespace ms::profile {

class RankOfPath {
 public:
  // pattern: --rank-from-name, an ECMAScript regular expression for a part of the path, case-insensitive, whose first
  // group (or all of it) is the number; empty: rank-3, rank_00003, worker3 in the file's name, the last such word.
  // Throws kInvalidArgument.
  explicit RankOfPath(const std::string& pattern);

  bool is_asked_for() const { return pattern_.has_value(); }
  std::optional<int> operator()(const std::string& path) const;

 private:
  std::optional<std::regex> pattern_;
};

}  // namespace ms::profile
