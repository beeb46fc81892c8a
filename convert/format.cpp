#include "convert/format.h"

#include <vector>

#include "convert/detail/printable.h"
#include "convert/formats.h"
#include "core/error.h"

namespace ms::convert {
namespace {

Format parse(const std::string& text, const std::string& flag, bool (*offers)(const FormatRow& row)) {
  std::vector<std::string_view> names;
  for (const FormatRow& row : formats()) {
    if (!offers(row)) continue;
    if (text == row.name) return row.format;
    names.push_back(row.name);
  }
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    list += core::cat(i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat(flag, " ", detail::printable(text), ": expected ", list));
}

}  // namespace

std::string_view format_name(Format format) { return format_row(format).name; }

Format parse_source_format(const std::string& text, const std::string& flag) {
  return parse(text, flag, [](const FormatRow& row) { return row.open != nullptr; });
}

Format parse_target_format(const std::string& text, const std::string& flag) {
  return parse(text, flag, [](const FormatRow& row) { return row.make_target != nullptr; });
}

}  // namespace ms::convert
