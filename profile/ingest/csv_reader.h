// Reads CSV tables (RFC 4180; also with a BOM, blanks around cells and empty lines) and finds columns by name.
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
  // Reads the header. path appears in messages; stats and stream must outlive the table.
  CsvTable(ByteStream& stream, std::string path, ImportStats& stats);

  // Index of the first of these columns that exists, or -1.
  int find(std::initializer_list<std::string_view> names) const;
  // Like find, but throws kCorruptData, naming the column, if none exists.
  int need(std::initializer_list<std::string_view> names) const;
  const std::vector<std::string>& header() const { return header_; }

  // Reads the next row; blanks and tabs around cells are removed. Rows of another length than the header are skipped
  // and counted (short_row). Returns false at the end.
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
