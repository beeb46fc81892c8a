#include "convert/torch/zip_reader.h"

#include <algorithm>
#include <cstring>

#include "convert/detail/printable.h"
#include "convert/torch/crc32.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

constexpr uint32_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50, kLocatorSignature = 0x07064b50;
constexpr uint32_t kCentralSignature = 0x02014b50, kLocalSignature = 0x04034b50;
constexpr int64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kCentralBytes = 46, kLocalBytes = 30;
constexpr uint16_t kEncrypted = 1, kZip64Extra = 1;
constexpr uint64_t kMaxEntries = 10'000'000;

// Reads a little-endian number; the caller guarantees that the bytes exist.
uint64_t number(std::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}
uint16_t u16(std::string_view bytes, size_t at) { return static_cast<uint16_t>(number(bytes, at, 2)); }
uint32_t u32(std::string_view bytes, size_t at) { return static_cast<uint32_t>(number(bytes, at, 4)); }
uint64_t u64(std::string_view bytes, size_t at) { return number(bytes, at, 8); }

}  // namespace

ArchiveRange ArchiveRange::whole(const std::string& path) {
  auto file = std::make_shared<core::BulkReader>(path);
  const int64_t bytes = file->size_bytes();
  return {std::move(file), 0, bytes, path};
}

ZipReader::ZipReader(ArchiveRange range) : range_(std::move(range)) {
  const Directory directory = find_directory();
  read_directory(directory);
  find_data(directory.at);
}

ZipReader::ZipReader(ArchiveRange range, std::vector<Entry> entries)
    : range_(std::move(range)), entries_(std::move(entries)) {
  for (size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
}

std::string ZipReader::read_text(int64_t at, int64_t size_bytes) const {
  std::string text(static_cast<size_t>(size_bytes), '\0');
  range_.file->read(std::as_writable_bytes(std::span(text)), range_.at + at);
  return text;
}

ZipReader::Directory ZipReader::find_directory() const {
  const int64_t size = range_.bytes, tail_bytes = std::min(size, kZipTailBytes);
  const std::string tail = read_text(size - tail_bytes, tail_bytes);
  for (int64_t at = tail_bytes - kEndBytes; at >= 0; --at) {
    const std::string_view end = std::string_view(tail).substr(static_cast<size_t>(at));
    if (u32(end, 0) != kEndSignature || u16(end, 20) != end.size() - kEndBytes) continue;
    if (u16(end, 4) != u16(end, 6) || (u16(end, 4) != 0 && u16(end, 4) != UINT16_MAX)) {
      throw Error(ErrorCode::kUnsupported, cat(range_.where, ": an archive in several parts"));
    }
    Directory directory{static_cast<int64_t>(u32(end, 16)), static_cast<int64_t>(u32(end, 12)), u16(end, 10)};
    int64_t limit = size - tail_bytes + at;  // the directory ends here or earlier
    const bool is_large =
        directory.at == UINT32_MAX || directory.bytes == UINT32_MAX || directory.entries == UINT16_MAX;
    if (limit >= kLocatorBytes) {
      const std::string locator = read_text(limit - kLocatorBytes, kLocatorBytes);
      if (u32(locator, 0) == kLocatorSignature) {
        const uint64_t where = u64(locator, 8);
        if (where > static_cast<uint64_t>(limit) || limit - static_cast<int64_t>(where) < kEnd64Bytes + kLocatorBytes) {
          throw Error(ErrorCode::kCorruptData, cat(range_.where, ": its ZIP64 end record lies outside the file"));
        }
        const std::string end64 = read_text(static_cast<int64_t>(where), kEnd64Bytes);
        if (u32(end64, 0) != kEnd64Signature) {
          throw Error(ErrorCode::kCorruptData, cat(range_.where, ": no ZIP64 end record at byte ", where));
        }
        limit = static_cast<int64_t>(where);
        directory = {static_cast<int64_t>(u64(end64, 48)), static_cast<int64_t>(u64(end64, 40)), u64(end64, 32)};
      } else if (is_large) {
        throw Error(ErrorCode::kCorruptData, cat(range_.where, ": its ZIP64 end record is missing"));
      }
    }
    if (directory.at < 0 || directory.bytes < 0 || directory.at > limit || directory.bytes > limit - directory.at ||
        directory.entries > std::min(kMaxEntries, static_cast<uint64_t>(directory.bytes / kCentralBytes))) {
      throw Error(ErrorCode::kCorruptData, cat(range_.where, ": a directory of ", directory.entries, " entries in ",
                                               directory.bytes, " bytes at byte ", directory.at, " of ", size));
    }
    return directory;
  }
  throw Error(ErrorCode::kCorruptData, cat(range_.where, ": not a ZIP archive, or its end is missing"));
}

void ZipReader::read_directory(const Directory& directory) {
  const std::string text = read_text(directory.at, directory.bytes);
  const auto corrupt = [&](size_t at, const char* what) {
    return Error(ErrorCode::kCorruptData, cat(range_.where, ": entry ", entries_.size(), " of its directory, at byte ",
                                              directory.at + static_cast<int64_t>(at), ": ", what));
  };
  size_t at = 0;
  entries_.reserve(directory.entries);
  while (entries_.size() < directory.entries) {
    if (text.size() - at < kCentralBytes || u32(text, at) != kCentralSignature) throw corrupt(at, "not an entry");
    const std::string_view record = std::string_view(text).substr(at);
    const size_t name_bytes = u16(record, 28), extra_bytes = u16(record, 30), comment_bytes = u16(record, 32);
    if (record.size() - kCentralBytes < name_bytes + extra_bytes + comment_bytes) throw corrupt(at, "it is truncated");
    Entry entry;
    entry.name = record.substr(kCentralBytes, name_bytes);
    entry.crc32 = u32(record, 16);
    if ((u16(record, 8) & kEncrypted) != 0 || u16(record, 10) != 0) {
      throw Error(ErrorCode::kUnsupported,
                  cat(range_.where, ": ", printable(entry.name),
                      " is compressed or encrypted; torch.save stores its records as they are"));
    }
    uint64_t packed = u32(record, 20), bytes = u32(record, 24), local = u32(record, 42);
    std::string_view extra = record.substr(kCentralBytes + name_bytes, extra_bytes);
    while (extra.size() >= 4) {
      const size_t size = u16(extra, 2);
      if (size > extra.size() - 4) throw corrupt(at, "an extra field is truncated");
      if (u16(extra, 0) == kZip64Extra) {
        std::string_view wide = extra.substr(4, size);
        for (uint64_t* value : {&bytes, &packed, &local}) {  // those that did not fit in 32 bits, in this order
          if (*value != UINT32_MAX) continue;
          if (wide.size() < 8) throw corrupt(at, "its ZIP64 sizes are missing");
          *value = u64(wide, 0);
          wide.remove_prefix(8);
        }
      }
      extra.remove_prefix(4 + size);
    }
    if (packed != bytes) throw corrupt(at, "a stored entry with two different sizes");
    if (local > static_cast<uint64_t>(directory.at) || bytes > static_cast<uint64_t>(directory.at)) {
      throw corrupt(at, "it lies outside the file");
    }
    entry.at = static_cast<int64_t>(local);  // offset of the local header; find_data() replaces it with that of the
                                             // data
    entry.bytes = static_cast<int64_t>(bytes);
    const std::string_view name = entry.name;
    if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos || name == ".." ||
        name.starts_with("../") || name.ends_with("/..") || name.find("/../") != std::string_view::npos) {
      throw corrupt(at, "its name is invalid");
    }
    entries_.push_back(std::move(entry));
    at += kCentralBytes + name_bytes + extra_bytes + comment_bytes;
  }
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.at < b.at; });
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!by_name_.emplace(entries_[i].name, i).second) {
      throw Error(ErrorCode::kCorruptData, cat(range_.where, ": two entries are named ", printable(entries_[i].name)));
    }
  }
}

// Moves entry offsets from local headers to the data; the last entry ends before `end`.
void ZipReader::find_data(int64_t end) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const int64_t limit = i + 1 < entries_.size() ? entries_[i + 1].at : end;
    const auto corrupt = [&](const char* what) {
      return Error(ErrorCode::kCorruptData,
                   cat(range_.where, ": ", printable(entry.name), " at byte ", entry.at, ": ", what));
    };
    if (limit - entry.at < kLocalBytes) throw corrupt("it overlaps the next");
    const std::string local = read_text(entry.at, kLocalBytes);
    if (u32(local, 0) != kLocalSignature) throw corrupt("no local header there");
    const int64_t data = entry.at + kLocalBytes + u16(local, 26) + u16(local, 28);
    if (u16(local, 26) != entry.name.size() || data > limit || entry.bytes > limit - data) {
      throw corrupt("it overlaps the next");
    }
    if (read_text(entry.at + kLocalBytes, u16(local, 26)) != entry.name) {
      throw corrupt("its local header has another name");
    }
    entry.at = data;
  }
}

std::optional<size_t> ZipReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

void ZipReader::read(size_t entry, int64_t offset, std::span<std::byte> out) const {
  const Entry& from = entries_[entry];
  MS_CHECK(offset >= 0 && static_cast<int64_t>(out.size()) <= from.bytes - offset, from.name, ": bytes ", offset, " + ",
           out.size(), " of ", from.bytes);
  range_.file->read(out, range_.at + from.at + offset);
}

std::string ZipReader::read_all(size_t entry, int64_t max_bytes) const {
  const Entry& from = entries_[entry];
  if (from.bytes > max_bytes) {
    throw Error(ErrorCode::kCorruptData,
                cat(range_.where, ": ", printable(from.name), " has ", from.bytes, " bytes, more than ", max_bytes));
  }
  std::string text = read_text(from.at, from.bytes);
  if (from.crc32 != 0 && crc32(0, std::as_bytes(std::span(text))) != from.crc32) {
    throw Error(ErrorCode::kCorruptData, cat(range_.where, ": ", printable(from.name),
                                             " does not match its CRC-32: "
                                             "the file is damaged"));
  }
  return text;
}

}  // namespace ms::convert
