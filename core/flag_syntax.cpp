#include "core/flag_syntax.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/printable.h"

namespace ms::core {
namespace {

constexpr size_t kMaxWord = 64;  // longer words are not typing errors, and the comparison is quadratic

// Optimal string alignment distance: letters changed, inserted, deleted, or swapped with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two_rows_up(b.size() + 1), row_above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(two_rows_up, row_above);
    std::swap(row_above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({row_above[j] + 1, row[j - 1] + 1, row_above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two_rows_up[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// Whether the whole token is a number such as -1, -.5 or -1e-5. (argparse takes the last one for a flag.)
bool is_negative_number(std::string_view token) {
  double value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  return token.size() > 1 && token[0] == '-' && end == token.data() + token.size() &&
         error != std::errc::invalid_argument && (token[1] == '.' || (token[1] >= '0' && token[1] <= '9'));
}

// The same of a list, such as -1,7: what is wrong with it is for its flag to say.
bool is_list_of_numbers(std::string_view token) {
  const size_t comma = token.find(',');
  return is_negative_number(token.substr(0, comma)) &&
         (comma == std::string_view::npos ||
          token.find_first_not_of("0123456789.,-+eE", comma) == std::string_view::npos);
}

// token: a switch, alone or with a value.
void check_switch(const std::string& name, const std::string& token) {
  if (token.size() <= name.size() || token[name.size()] != '=') return;
  const std::string value = token.substr(name.size() + 1);
  if (value == "true" || value == "false") return;
  throw Error(ErrorCode::kInvalidArgument, cat(name, ": ", printable(value), " is neither true nor false"));
}

bool looks_like_flag(std::string_view token) { return token.size() > 1 && token[0] == '-'; }

}  // namespace

void FlagSyntax::add(std::string name, int min_values, int max_values) {
  flags_.insert_or_assign(std::move(name), Values{min_values, max_values});
}

const std::pair<const std::string, FlagSyntax::Values>* FlagSyntax::find(std::string_view token) const {
  if (!looks_like_flag(token)) return nullptr;
  const bool one_letter = token[1] != '-';
  const auto found = flags_.find(one_letter ? token.substr(0, 2) : token.substr(0, token.find('=')));
  return found == flags_.end() ? nullptr : &*found;
}

bool FlagSyntax::knows(std::string_view token) const { return find(token) != nullptr; }

bool FlagSyntax::is_value(std::string_view token) const {
  if (!looks_like_flag(token) || is_list_of_numbers(token)) return true;
  return token.find(' ') != std::string_view::npos && !knows(token);
}

void FlagSyntax::check(std::span<const std::string> args) const {
  for (size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    const auto* flag = find(args[i]);
    if (flag == nullptr) continue;
    const auto& [name, values] = *flag;
    if (values.most == 0) {
      check_switch(name, args[i]);
      continue;
    }
    const size_t wanted = static_cast<size_t>(values.least);
    const std::string expected = values.most > values.least && wanted == 1 ? "at least one argument"
                                 : wanted == 1                             ? "one argument"
                                                                           : cat(wanted, " arguments");
    if (args[i].size() > name.size()) {  // with its value: --name=value, -nvalue
      if (wanted > 0 && args[i].size() == name.size() + 1 && args[i].back() == '=') {
        throw Error(ErrorCode::kInvalidArgument,
                    cat(name, ": expected ", expected, ", but nothing follows the '='. Is a shell variable empty? ",
                        name, " \"\" passes an empty text"));
      }
      continue;
    }
    size_t given = 0;
    while (i + 1 < args.size() && given < static_cast<size_t>(values.most) && is_value(args[i + 1])) ++given, ++i;
    if (given >= wanted) continue;
    const std::string seen = i + 1 == args.size() || args[i + 1] == "--"
                                 ? "the command line ends"
                                 : cat(knows(args[i + 1]) ? "the flag " : "", shown_value(args[i + 1]), " follows");
    throw Error(ErrorCode::kInvalidArgument,
                cat(name, ": expected ", expected, ", but ", given > 0 ? cat("after ", given, " ") : "", seen,
                    ". Is a shell variable empty?"));
  }
}

std::string FlagSyntax::nearest(std::string_view flag) const {
  std::vector<std::string> names;
  for (const auto& [name, values] : flags_) {
    if (name.size() > 2) names.push_back(name.substr(2));  // one-letter flags are all close to each other
  }
  if (flag.rfind("--", 0) != 0) return "";
  const std::string near = nearest_word(flag.substr(2, std::min(flag.find('='), flag.size()) - 2), names);
  return near.empty() ? "" : "--" + near;
}

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kMaxWord) return "";
  size_t least = std::max<size_t>(1, word.size() / 4) + 1;
  std::string nearest, completed;
  size_t completions = 0;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 2 * kMaxWord) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance < least && distance < word.size()) {
      least = distance;
      nearest = candidate;
    }
    if (candidate.rfind(word, 0) == 0) {
      completed = candidate;
      ++completions;
    }
  }
  return nearest.empty() && completions == 1 ? completed : nearest;
}

}  // namespace ms::core
