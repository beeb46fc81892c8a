// Pieces of the cells that the edges of one rank's boxes cut (logical_hash.h), in a file beside the rank's until the
// pieces of all ranks meet: where rows are cut within a cell there is one for every row, more than memory should hold.
//
// In the file, one behind the other: a Segment, its pieces (LogicalPartial::Piece), their bytes.
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
  // path: made when there are more than memory_bytes of pieces.
  CutCellsWriter(std::string path, int64_t memory_bytes) : path_(std::move(path)), memory_bytes_(memory_bytes) {}

  // Takes the pieces out of what the box `box` has contributed. Throws kIo.
  void take(int32_t box, LogicalPartial& partial);
  // Once. True: there is a file, which has all pieces and is durable; false: they are few, and put back to their boxes.
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
  // Throws kNotFound, kIo, and kCorruptData if it is not such a file.
  explicit CutCellsReader(std::string path);

  // Puts the pieces of the box `box` back. Throws kIo, kCorruptData.
  void put_back(int32_t box, LogicalPartial& partial) const;
  // Reads all. Throws as put_back.
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
