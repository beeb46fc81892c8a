#include "ckpt/detail/cut_cells.h"

#include <cstring>
#include <span>

#include "core/error.h"
#include "kernels/checksum.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using Piece = LogicalPartial::Piece;

struct Segment {
  uint64_t box, pieces, bytes;
  uint64_t xxh3;  // of the pieces and bytes that follow
};

}  // namespace

void CutCellsWriter::take(int32_t box, LogicalPartial& partial) {
  if (partial.pieces.empty()) return;
  waiting_bytes_ += static_cast<int64_t>(partial.pieces.size() * sizeof(Piece) + partial.bytes.size());
  LogicalPartial pieces;
  std::swap(pieces.pieces, partial.pieces);
  std::swap(pieces.bytes, partial.bytes);
  waiting_[box].merge(pieces);
  if (waiting_bytes_ > memory_bytes_) flush();
}

void CutCellsWriter::flush() {
  if (waiting_.empty()) return;
  if (!file_) file_ = core::File::create(path_);
  std::vector<std::byte> text;
  for (const auto& [box, partial] : waiting_) {
    const size_t head = partial.pieces.size() * sizeof(Piece), begin = text.size() + sizeof(Segment);
    text.resize(begin + head + partial.bytes.size());
    std::memcpy(text.data() + begin, partial.pieces.data(), head);
    std::memcpy(text.data() + begin + head, partial.bytes.data(), partial.bytes.size());
    const Segment segment{static_cast<uint64_t>(box), partial.pieces.size(), partial.bytes.size(),
                          kernels::xxh3(text.data() + begin, head + partial.bytes.size())};
    std::memcpy(text.data() + begin - sizeof segment, &segment, sizeof segment);
  }
  file_->pwrite(text, written_bytes_);
  written_bytes_ += static_cast<int64_t>(text.size());
  waiting_.clear();
  waiting_bytes_ = 0;
}

bool CutCellsWriter::finish(std::vector<LogicalPartial>& of_box) {
  if (!file_) {
    for (const auto& [box, partial] : waiting_) of_box[static_cast<size_t>(box)].merge(partial);
    waiting_.clear();
    return false;
  }
  flush();
  file_->fsync();
  file_->close();
  file_.reset();
  return true;
}

CutCellsReader::CutCellsReader(std::string path) : path_(std::move(path)) {
  const core::File file = core::File::open_read(path_);
  const auto size = static_cast<uint64_t>(file.size_bytes());
  for (uint64_t at = 0; at < size;) {
    Segment segment{};
    if (size - at >= sizeof segment) {
      file.pread(std::as_writable_bytes(std::span(&segment, 1)), static_cast<int64_t>(at));
      at += sizeof segment;
    }
    const uint64_t rest = size - at;
    if (segment.pieces == 0 || segment.pieces > rest / sizeof(Piece) ||
        segment.bytes > rest - segment.pieces * sizeof(Piece) || segment.box > INT32_MAX) {
      throw Error(ErrorCode::kCorruptData, cat(path_, ": no segment of pieces ends at byte ", at));
    }
    places_[static_cast<int32_t>(segment.box)].push_back(
        {static_cast<int64_t>(at), segment.pieces, segment.bytes, segment.xxh3});
    at += segment.pieces * sizeof(Piece) + segment.bytes;
  }
}

void CutCellsReader::read(const core::File& file, const Place& place, LogicalPartial& partial) const {
  const size_t head = place.pieces * sizeof(Piece);
  std::vector<std::byte> text(head + place.bytes);
  file.pread(text, place.at);
  if (kernels::xxh3(text.data(), text.size()) != place.xxh3) {
    throw Error(ErrorCode::kCorruptData,
                cat(path_, ": the pieces at byte ", place.at, " are damaged: their hash differs"));
  }
  LogicalPartial pieces;
  pieces.pieces.resize(place.pieces);
  std::memcpy(pieces.pieces.data(), text.data(), head);
  pieces.bytes.assign(text.begin() + static_cast<std::ptrdiff_t>(head), text.end());
  partial.merge(pieces);
}

void CutCellsReader::put_back(int32_t box, LogicalPartial& partial) const {
  const auto found = places_.find(box);
  if (found == places_.end()) return;
  const core::File file = core::File::open_read(path_);
  for (const Place& place : found->second) read(file, place, partial);
}

void CutCellsReader::check() const {
  const core::File file = core::File::open_read(path_);
  for (const auto& [box, places] : places_) {
    for (const Place& place : places) {
      LogicalPartial partial;
      read(file, place, partial);
    }
  }
}

}  // namespace ms::ckpt
