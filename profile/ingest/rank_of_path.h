// Extracts the rank from the name of a trace file.
#pragma once

#include <optional>
#include <regex>
#include <string>

namespace ms::profile {

class RankOfPath {
 public:
  // pattern: --rank-from-name, an ECMAScript regular expression for a part of the path, case-insensitive, whose first
  // group (or whole match) is the number. Empty: the last of the words rank-3, rank_00003, worker3 in the file's name.
  // Throws kInvalidArgument.
  explicit RankOfPath(const std::string& pattern);

  bool has_pattern() const { return pattern_.has_value(); }
  std::optional<int> operator()(const std::string& path) const;

 private:
  std::optional<std::regex> pattern_;
};

}  // namespace ms::profile
