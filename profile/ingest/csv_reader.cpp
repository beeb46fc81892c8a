#include "profile/ingest/csv_reader.h"

#include <algorithm>

#include "core/error.h"

namespace ms::profile {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 16;
constexpr size_t kMaxCells = 4096;
constexpr size_t kMaxCellBytes = size_t{1} << 20;  // for call stacks; a longer cell is an unclosed quote

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

CsvTable::CsvTable(ByteStream& stream, std::string path, ImportStats& stats)
    : stream_(stream), path_(std::move(path)), stats_(stats) {
  if (!read_row(header_)) throw core::Error(core::ErrorCode::kCorruptData, core::cat(path_, ": is empty"));
  if (header_[0].starts_with("\xef\xbb\xbf")) header_[0].erase(0, 3);
}

int CsvTable::find(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    const auto found = std::find(header_.begin(), header_.end(), name);
    if (found != header_.end()) return static_cast<int>(found - header_.begin());
  }
  return -1;
}

int CsvTable::need(std::initializer_list<std::string_view> names) const {
  const int found = find(names);
  if (found >= 0) return found;
  throw core::Error(core::ErrorCode::kCorruptData, core::cat(path_, ": has no column \"", *names.begin(), "\""));
}

bool CsvTable::next(std::vector<std::string>& row) {
  while (read_row(row)) {
    if (row.size() == header_.size()) return true;
    if (row.size() == 1 && row[0].empty()) continue;  // an empty line
    stats_.add("short_row", core::cat(path_, ": ", row.size(), " cells, the header has ", header_.size()));
  }
  return false;
}

int CsvTable::get() {
  if (at_ == buffer_.size()) {
    buffer_.resize(kBlockBytes);
    buffer_.resize(stream_.read(buffer_.data(), kBlockBytes));
    at_ = 0;
    if (buffer_.empty()) return -1;
  }
  return static_cast<unsigned char>(buffer_[at_++]);
}

bool CsvTable::read_row(std::vector<std::string>& row) {
  row.clear();
  std::string cell;
  bool quoted = false, any = false;
  for (int c = get();; c = get()) {
    if (c < 0) {
      if (!any) return false;
      break;
    }
    any = true;
    if (cell.size() > kMaxCellBytes || row.size() > kMaxCells) {
      throw core::Error(core::ErrorCode::kCorruptData,
                        core::cat(path_, ": a row without an end: a closing quote is missing"));
    }
    if (quoted) {
      if (c != '"') {
        cell += static_cast<char>(c);
        continue;
      }
      const int following = get();
      if (following == '"') {
        cell += '"';
        continue;
      }
      quoted = false;
      c = following;
      if (c < 0) break;
    } else if (c == '"' && trimmed(cell).empty()) {
      cell.clear();
      quoted = true;
      continue;
    }
    if (c == '\n') break;
    if (c == ',') {
      row.push_back(trimmed(cell));
      cell.clear();
      continue;
    }
    cell += static_cast<char>(c);
  }
  row.push_back(trimmed(cell));
  return true;
}

}  // namespace ms::profile
