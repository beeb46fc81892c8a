// Reads CSV tables (RFC 4180, with the surprises of traces.md 5.5) by the names of their columns.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/import_stats.h"
#include "profile/ingest/byte_stream.h"

namespace ms::profile {

class CsvTable {
 public:
  // Reads the header. path is for messages; both stats and stream must outlive the table.
  CsvTable(ByteStream& stream, std::string path, ImportStats& stats);

  // Position of the first of these columns that exists, -1 if none does.
  int find(std::initializer_list<std::string_view> names) const;
  // The same, but a missing column is kCorruptData and named.
  int need(std::initializer_list<std::string_view> names) const;
  const std::vector<std::string>& header() const { return header_; }

  // The next row, cells without surrounding blanks and tabs; rows of another length are counted (short_row) and
  // skipped. False at the end.
  bool next(std::vector<std::string>& row);

 private:
  bool read_row(std::vector<std::string>& row);
  int get();

  ByteStream& stream_;
  std::string path_;
  ImportStats& stats_;
  std::vector<std::string> header_;
  std::string buffer_;
  size_t at_ = 0;
};

}  // namespace ms::profile
