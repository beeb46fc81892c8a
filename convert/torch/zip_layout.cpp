#include "convert/torch/zip_layout.h"

#include "core/error.h"

namespace ms::convert {
namespace {

constexpr int64_t kAlignment = 64;
// Alignment of records of kLargeBytes and more: page-aligned data is written past the page cache without a copy.
constexpr int64_t kLargeAlignment = 4096, kLargeBytes = 64 << 10;
constexpr int64_t kLocalBytes = 30, kExtraHead = 4, kEnd64Bytes = 56;
constexpr uint16_t kVersion = 20, kVersion64 = 45;  // ZIP versions needed to extract
constexpr uint16_t kFirstDay = 0x0021;              // 1980-01-01
constexpr uint16_t kZip64Extra = 1, kPaddingExtra = 'F' | 'B' << 8;

bool is_wide(int64_t value) { return value >= UINT32_MAX; }

void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}
void put16(std::string& out, uint64_t value) { put(out, value, 2); }
void put32(std::string& out, uint64_t value) { put(out, value, 4); }
void put64(std::string& out, int64_t value) { put(out, static_cast<uint64_t>(value), 8); }
void put_narrow(std::string& out, int64_t value) {
  put32(out, is_wide(value) ? UINT32_MAX : static_cast<uint64_t>(value));
}

// Writes the fields that a local header and a directory entry share, from the version on.
void put_common(std::string& out, const ZipLayout::Record& record, bool wide, uint32_t crc32) {
  put16(out, wide ? kVersion64 : kVersion);
  put16(out, 0);  // flags
  put16(out, 0);  // method: stored
  put16(out, 0);  // time
  put16(out, kFirstDay);
  put32(out, crc32);
  put_narrow(out, record.bytes);
  put_narrow(out, record.bytes);
  put16(out, record.name.size());
}

}  // namespace

void ZipLayout::add(std::string name, int64_t bytes) {
  MS_CHECK(bytes >= 0 && name.size() < UINT16_MAX, "a record of ", bytes, " bytes");
  const int64_t extras = (is_wide(bytes) ? kExtraHead + 16 : 0) + kExtraHead;
  const int64_t least = end_ + kLocalBytes + static_cast<int64_t>(name.size()) + extras;
  const int64_t alignment = bytes < kLargeBytes ? kAlignment : kLargeAlignment;
  const int64_t at = (least + alignment - 1) / alignment * alignment;
  records_.push_back({std::move(name), end_, at, bytes});
  end_ = at + bytes;
}

std::string ZipLayout::header(size_t index, uint32_t crc32) const {
  const Record& record = records_[index];
  const bool wide = is_wide(record.bytes);
  std::string out = "PK\3\4";
  put_common(out, record, wide, crc32);
  const auto extras = static_cast<size_t>(record.at - record.header_at - kLocalBytes) - record.name.size();
  put16(out, extras);
  out += record.name;
  if (wide) {
    put16(out, kZip64Extra);
    put16(out, 16);
    put64(out, record.bytes);
    put64(out, record.bytes);
  }
  const auto padding = static_cast<size_t>(record.at - record.header_at - kExtraHead) - out.size();
  put16(out, kPaddingExtra);
  put16(out, padding);
  return out.append(padding, 'Z');
}

int64_t ZipLayout::archive_bytes() const {
  return end_ + static_cast<int64_t>(directory(std::vector<uint32_t>(records_.size())).size());
}

std::string ZipLayout::directory(std::span<const uint32_t> crc32s) const {
  std::string out;
  for (size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    std::string wide;  // what 32 bits cannot hold: both sizes, offset
    if (is_wide(record.bytes)) {
      put64(wide, record.bytes);
      put64(wide, record.bytes);
    }
    if (is_wide(record.header_at)) put64(wide, record.header_at);
    out += "PK\1\2";
    put16(out, kVersion64);  // made by
    put_common(out, record, !wide.empty(), crc32s[i]);
    put16(out, wide.empty() ? 0 : kExtraHead + wide.size());
    put16(out, 0);  // comment
    put16(out, 0);  // disk number
    put16(out, 0);  // attributes
    put32(out, 0);
    put_narrow(out, record.header_at);
    out += record.name;
    if (wide.empty()) continue;
    put16(out, kZip64Extra);
    put16(out, wide.size());
    out += wide;
  }
  const auto bytes = static_cast<int64_t>(out.size()), entries = static_cast<int64_t>(records_.size());
  const bool many = entries >= UINT16_MAX;
  if (many || is_wide(bytes) || is_wide(end_)) {
    out += "PK\6\6";
    put64(out, kEnd64Bytes - 12);
    put16(out, kVersion64);
    put16(out, kVersion64);
    put32(out, 0);  // number of this disk, and of the directory's disk
    put32(out, 0);
    put64(out, entries);
    put64(out, entries);
    put64(out, bytes);
    put64(out, end_);
    out += "PK\6\7";
    put32(out, 0);
    put64(out, end_ + bytes);
    put32(out, 1);  // number of disks
  }
  out += "PK\5\6";
  put32(out, 0);
  put16(out, many ? UINT16_MAX : static_cast<uint64_t>(entries));
  put16(out, many ? UINT16_MAX : static_cast<uint64_t>(entries));
  put_narrow(out, bytes);
  put_narrow(out, end_);
  put16(out, 0);
  return out;
}

}  // namespace ms::convert
