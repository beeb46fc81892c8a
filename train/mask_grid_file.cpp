#include "train/mask_grid_file.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/io/file.h"
#include "core/printable.h"

namespace ms::train {
namespace {

// A grid of the most cells with a blank behind each digit, twice.
constexpr int64_t kMaxFileBytes = 4 * layout::kMaxCoarseCells * layout::kMaxCoarseCells;

std::string read_file(const std::string& path) {
  const int64_t size = core::File::open_read(path).size_bytes();
  if (size <= kMaxFileBytes) return core::read_text(path, kMaxFileBytes);
  throw core::Error(
      core::ErrorCode::kCorruptData,
      core::cat(path, " has ", size, " bytes; expected at most ", kMaxFileBytes, ", 4 for each of ",
                layout::kMaxCoarseCells, " x ", layout::kMaxCoarseCells, " cells, the most that a grid has"));
}

[[noreturn]] void fail_at(std::string_view where, int64_t line, const std::string& what) {
  throw core::Error(core::ErrorCode::kCorruptData, core::cat(where, ": line ", line, what));
}

// Without the carriage return of CRLF.
std::string_view without_line_end(std::string_view row, std::string_view where, int64_t line) {
  if (row.ends_with('\r')) row.remove_suffix(1);
  if (const size_t at = row.find('\r'); at != std::string_view::npos) {
    fail_at(where, line,
            core::cat(", column ", at + 1,
                      ": a carriage return, and no line feed behind it: lines end with LF or CRLF; "
                      "tr '\\r' '\\n' makes them of what old Macs wrote"));
  }
  return row;
}

bool is_comment(std::string_view row) {
  const size_t first = row.find_first_not_of(" \t");
  return first != std::string_view::npos && row[first] == '#';
}

// Appends the digits of a line; returns how many there are.
int64_t read_row(std::string_view text, std::string_view where, int64_t line, std::vector<uint8_t>& visible) {
  int64_t digits = 0;
  for (size_t column = 0; column < text.size(); ++column) {
    const char c = text[column];
    if (c == ' ' || c == '\t') continue;
    if (c != '0' && c != '1') {
      const bool is_printable = c > ' ' && c <= '~';
      fail_at(where, line,
              core::cat(", column ", column + 1, ": ",
                        is_printable ? core::cat("'", c, "'") : core::cat("byte ", int{static_cast<uint8_t>(c)}),
                        ", expected 1 (visible) or 0, as numpy.savetxt writes with fmt=\"%d\""));
    }
    if (++digits > layout::kMaxCoarseCells)
      fail_at(where, line, core::cat(": more than ", layout::kMaxCoarseCells, " cells, the most that a grid has"));
    visible.push_back(c == '1' ? 1 : 0);
  }
  return digits;
}

}  // namespace

MaskGridFile parse_mask_grid(std::string_view text, std::string_view where) {
  MaskGridFile grid;
  int64_t rows = 0;
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view row = without_line_end(text.substr(0, end), where, line);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (is_comment(row)) continue;
    const int64_t digits = read_row(row, where, line, grid.visible);
    if (digits == 0) continue;
    if (rows == 0) grid.cells = digits;
    if (digits != grid.cells)
      fail_at(where, line,
              core::cat(": ", core::counted(digits, "cell"), ", expected ", grid.cells, " as in the first row"));
    if (++rows > grid.cells)
      fail_at(where, line, core::cat(": a row more than the ", grid.cells, " that a grid of as many columns has"));
  }
  if (rows == 0 || rows != grid.cells) {
    const std::string seen = rows == 0
                                 ? "no row of digits"
                                 : core::cat(core::counted(rows, "row"), " of ", core::counted(grid.cells, "cell"));
    throw core::Error(
        core::ErrorCode::kCorruptData,
        core::cat(where, ": ", seen, ", expected as many rows as columns: one of queries for each part of a sample"));
  }
  return grid;
}

layout::MaskGrid read_mask_grid(const std::string& path, int64_t seq_length, bool is_causal) {
  const MaskGridFile file = parse_mask_grid(read_file(path), path);
  if (seq_length <= 0 || seq_length % file.cells != 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat(path, ": ", file.cells, " x ", file.cells, " cells, but --seq-length ", seq_length,
                                " is not a multiple of ", file.cells, "; give a grid whose size divides it"));
  }
  layout::CoarseMask visible(seq_length, file.cells);
  for (int64_t query = 0; query < file.cells; ++query)
    for (int64_t key = 0; key < file.cells; ++key)
      if (file.visible[static_cast<size_t>(query * file.cells + key)] != 0) visible.show(query, key);
  layout::MaskGrid grid(std::move(visible), is_causal);
  if (const std::optional<int64_t> blind = grid.blind_query()) {
    const int64_t row = *blind / (seq_length / file.cells);
    throw core::Error(core::ErrorCode::kCorruptData,
                      core::cat(path, ": row ", row + 1, " of ", file.cells, " shows no key",
                                is_causal ? " up to its own cell" : "", ": its queries, from position ", *blind,
                                " on, would attend to nothing; set its cell ", row + 1, " to 1"));
  }
  return grid;
}

}  // namespace ms::train
