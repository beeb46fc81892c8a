#include "convert/format.h"

#include "convert/detail/printable.h"
#include "convert/formats.h"
#include "core/error.h"

namespace ms::convert {

std::string_view format_name(Format format) { return format_row(format).name; }

Format parse_format(const std::string& text, const std::string& flag) {
  std::string names;
  const auto rows = formats();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (text == rows[i].name) return rows[i].format;
    names += core::cat(i == 0 ? "" : i + 1 == rows.size() ? " or " : ", ", rows[i].name);
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat(flag, " ", detail::printable(text), ": expected ", names));
}

}  // namespace ms::convert
