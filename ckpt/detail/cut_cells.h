// Stores pieces of cells that the boundaries of one rank's boxes split (logical_hash.h), in a file beside the rank
// file, until the pieces of all ranks are merged. A layout that splits rows within a cell has at least one piece per
// row, too many to keep in memory.
//
// The file is a sequence of: a Segment, its pieces (LogicalPartial::Piece), their bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/logical_hash.h"
#include "core/io/file.h"

namespace ms::ckpt {

inline constexpr int64_t kCutCellsBytes = int64_t{512} << 10;

class CutCellsWriter {
 public:
  // path: created once there are more than memory_bytes of pieces.
  CutCellsWriter(std::string path, int64_t memory_bytes) : path_(std::move(path)), memory_bytes_(memory_bytes) {}

  // Moves the pieces out of `partial`, the contribution of box `box`. Throws kIo.
  void take(int32_t box, LogicalPartial& partial);
  // Call once. True: the file exists, has all pieces and is durable. False: there were few pieces; they are back in
  // of_box.
  // Throws kIo.
  bool finish(std::vector<LogicalPartial>& of_box);

 private:
  void flush();

  std::string path_;
  int64_t memory_bytes_;
  std::optional<core::File> file_;
  std::map<int32_t, LogicalPartial> waiting_;
  int64_t waiting_bytes_ = 0, written_bytes_ = 0;
};

class CutCellsReader {
 public:
  // Throws kNotFound, kIo, and kCorruptData if the file is invalid.
  explicit CutCellsReader(std::string path);

  // Adds the pieces of box `box` to `partial` again. Throws kIo, kCorruptData.
  void put_back(int32_t box, LogicalPartial& partial) const;
  // Reads and checks all pieces. Throws as put_back.
  void check() const;

 private:
  struct Place {
    int64_t at = 0;
    uint64_t pieces = 0, bytes = 0, xxh3 = 0;
  };
  void read(const core::File& file, const Place& place, LogicalPartial& partial) const;

  std::string path_;
  std::map<int32_t, std::vector<Place>> places_;  // by box
};

}  // namespace ms::ckpt
