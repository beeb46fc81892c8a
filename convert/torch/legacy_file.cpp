#include "convert/torch/legacy_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "convert/detail/printable.h"
#include "convert/torch/torch_types.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

// PROTO 2, LONG1 of ten bytes: 0x1950a86a20f9469cfc6c.
constexpr std::string_view kMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);
constexpr int64_t kProtocol = 1001;
constexpr size_t kFirstBytes = size_t{4} << 20, kMaxBytes = size_t{512} << 20;  // limits for the pickles

std::string read_text(const ArchiveRange& range, int64_t at, size_t size) {
  std::string text(size, '\0');
  range.file->read(std::as_writable_bytes(std::span(text)), range.at + at);
  return text;
}

struct Storage {
  SafetensorsDType dtype = SafetensorsDType::kF32;
  int64_t elements = 0;
};

// All storages that the object refers to, by key.
std::map<std::string, Storage> storages_of(const Pickle& pickle) {
  const auto corrupt = [&](const char* what) {
    return Error(ErrorCode::kCorruptData, cat(pickle.where(), ": ", what));
  };
  std::map<std::string, Storage> storages;
  std::set<uint32_t> seen;
  std::vector<PickleValue> open = {pickle.root()};
  const auto add = [&](const std::vector<PickleValue>& values) {
    open.insert(open.end(), values.begin(), values.end());
  };
  while (!open.empty()) {
    const PickleValue value = open.back();
    open.pop_back();
    if (!seen.insert(value.id()).second) continue;
    switch (value.kind()) {
      case PickleKind::kTuple:
      case PickleKind::kList:
      case PickleKind::kDict:
      case PickleKind::kSet:
        add(value.items());
        break;
      case PickleKind::kCall:
        add(value.items());
        add(value.arguments());
        if (const auto state = value.state()) open.push_back(*state);
        break;
      case PickleKind::kPersistent: {
        const PickleValue id = value.items().at(0);
        const auto parts = id.is(PickleKind::kTuple) ? id.items() : std::vector<PickleValue>();
        if (parts.size() < 5 || !parts[1].is(PickleKind::kSymbol))
          throw corrupt("a persistent id that is not a storage");
        if (parts.size() > 5 && !parts[5].is(PickleKind::kNone)) {
          throw Error(ErrorCode::kUnsupported, cat(pickle.where(), ": a storage that is a view of another"));
        }
        const auto dtype = parse_torch_storage(parts[1]);
        if (!dtype) {
          throw Error(ErrorCode::kUnsupported, cat(pickle.where(), ": a storage of type ", printable(parts[1].text())));
        }
        storages[std::string(parts[2].text())] = {*dtype, parts[4].integer()};
        break;
      }
      default:
        break;
    }
  }
  return storages;
}

// The pickles at the start of `bytes`.
struct Pickles {
  std::unique_ptr<Pickle> object;
  std::vector<std::string> keys;
  size_t end = 0;
};

Pickles read_pickles(const std::string& bytes, const std::string& where) {
  Pickles made;
  const auto next = [&](const char* what) {
    auto pickle = std::make_unique<Pickle>(bytes.substr(made.end), cat(where, ": ", what));
    made.end += pickle->end();
    return pickle;
  };
  next("magic number");
  if (const auto protocol = next("protocol");
      !protocol->root().is(PickleKind::kInt) || protocol->root().integer() != kProtocol) {
    throw Error(ErrorCode::kCorruptData, cat(where, ": its torch.save protocol is not ", kProtocol));
  }
  const auto machine = next("machine");
  if (const auto little = machine->root().find("little_endian");
      !little || !little->is(PickleKind::kBool) || !little->boolean()) {
    throw Error(ErrorCode::kUnsupported, cat(where, ": written on a big-endian machine"));
  }
  made.object = next("object");
  const auto keys = next("keys");
  for (const PickleValue key : keys->root().items()) made.keys.emplace_back(key.text());
  return made;
}

}  // namespace

bool is_legacy_torch_file(const ArchiveRange& range) {
  if (range.bytes < static_cast<int64_t>(kMagic.size())) return false;
  return read_text(range, 0, kMagic.size()) == kMagic;
}

LegacyTorchFile read_legacy_torch_file(const ArchiveRange& range) {
  const auto size = static_cast<size_t>(range.bytes);
  Pickles pickles;
  // The length of the pickles is not stored; for models they are short, so start small and grow.
  for (size_t taken = std::min(size, kFirstBytes);; taken = std::min({size, 4 * taken, kMaxBytes})) {
    try {
      pickles = read_pickles(read_text(range, 0, taken), range.where);
      break;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorruptData || taken == size || taken == kMaxBytes) throw;
    }
  }
  const std::map<std::string, Storage> storages = storages_of(*pickles.object);
  LegacyTorchFile made;
  int64_t at = static_cast<int64_t>(pickles.end);
  const auto corrupt = [&](const auto&... parts) {
    return Error(ErrorCode::kCorruptData, cat(range.where, ": the storage ", parts...));
  };
  std::set<std::string> taken;
  for (const std::string& key : pickles.keys) {
    const auto found = storages.find(key);
    if (found == storages.end()) throw corrupt(printable(key), " is used by no tensor");
    if (!taken.insert(key).second) throw corrupt(printable(key), " occurs twice");
    const auto item = static_cast<int64_t>(bits_of(found->second.dtype) / 8);
    const int64_t left = range.bytes - at - static_cast<int64_t>(sizeof(int64_t));
    if (left < 0) throw corrupt(printable(key), " is truncated: the file ends at byte ", range.bytes);
    int64_t elements = 0;
    const std::string count = read_text(range, at, sizeof elements);
    std::memcpy(&elements, count.data(), sizeof elements);
    if (elements != found->second.elements || elements < 0 || elements > left / item) {
      throw corrupt(printable(key), " at byte ", at, " has ", elements, " elements, but should have ",
                    found->second.elements, ", and the file has space for ", left / item);
    }
    at += static_cast<int64_t>(sizeof elements);
    made.records.push_back({cat("archive/data/", key), at, elements * item, 0});
    at += elements * item;
  }
  if (at != range.bytes) {
    throw Error(ErrorCode::kCorruptData,
                cat(range.where, ": ", range.bytes - at, " extra bytes after the last storage"));
  }
  made.pickle = std::move(pickles.object);
  return made;
}

}  // namespace ms::convert
