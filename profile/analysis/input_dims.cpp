#include "profile/analysis/input_dims.h"

#include <charconv>

namespace ms::profile {

std::optional<std::vector<Dims>> parse_dims(std::string_view text) {
  constexpr int64_t kMax = int64_t{1} << 31;
  std::vector<Dims> out;
  int depth = 0;
  bool closed = false;  // of the outer list: only white space may follow
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const bool space = *p == ' ' || *p == '\n' || *p == '\r' || *p == '\t';  // files may be indented
    if (closed && !space) return std::nullopt;
    if (*p == '[') {
      if (++depth == 2) out.emplace_back();
      if (depth > 2) return std::nullopt;  // lists of tensors
      ++p;
    } else if (*p == ']') {
      if (--depth < 0) return std::nullopt;
      ++p;
      closed = depth == 0;
    } else if (space || *p == ',') {
      ++p;
    } else {
      int64_t size = 0;
      const auto [next, error] = std::from_chars(p, end, size);
      if (error != std::errc() || depth != 2 || size < 0 || size > kMax) return std::nullopt;
      out.back().push_back(size);
      p = next;
    }
  }
  if (!closed) return std::nullopt;
  return out;
}

}  // namespace ms::profile
