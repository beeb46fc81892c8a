// Checks what SentencePiece's library does not check in a .model: the character maps of its normalizers.

#include <cstring>
#include <optional>

#include "core/error.h"
#include "train/data/detail/sentencepiece_tokenizer.h"

namespace ms::train::detail {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

// One field of a protocol buffer message (protobuf.dev, "Encoding"); bytes: of a length-delimited one.
struct ProtoField {
  uint64_t number = 0;
  std::string_view bytes;
};

std::optional<uint64_t> take_varint(std::string_view& message) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !message.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(message.front());
    message.remove_prefix(1);
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// The next field; nullopt at the end, and if the message is malformed, which the library itself reports.
std::optional<ProtoField> take_field(std::string_view& message) {
  const auto key = take_varint(message);
  if (!key) return std::nullopt;
  ProtoField field{*key >> 3, {}};
  size_t size = 0;
  switch (*key & 7) {
    case 0:
      return take_varint(message) ? std::optional(field) : std::nullopt;
    case 1:
      size = 8;
      break;
    case 2: {
      const auto length = take_varint(message);
      if (!length || *length > message.size()) return std::nullopt;
      size = static_cast<size_t>(*length);
      break;
    }
    case 5:
      size = 4;
      break;
    default:
      return std::nullopt;
  }
  if (size > message.size()) return std::nullopt;
  field.bytes = message.substr(0, size);
  message.remove_prefix(size);
  return field;
}

// A map consists of the size of a double-array trie in bytes, the trie (32-bit units, as darts-clone writes them), and
// the texts that its leaves point to, each terminated by NUL.
void check_character_map(std::string_view map) {
  const auto corrupt = [](const std::string& what) {
    throw Error(ErrorCode::kCorruptData, cat("the character map of its normalizer is broken: ", what));
  };
  if (map.empty()) return;
  uint32_t trie_bytes = 0;
  if (map.size() < sizeof(trie_bytes)) corrupt(cat(map.size(), " bytes"));
  std::memcpy(&trie_bytes, map.data(), sizeof(trie_bytes));
  const std::string_view rest = map.substr(sizeof(trie_bytes));
  if (trie_bytes >= rest.size() || trie_bytes < 1024 || rest.back() != '\0') {
    corrupt(cat("a trie of ", trie_bytes, " bytes and its texts in ", rest.size()));
  }
  const size_t units = trie_bytes / 4;
  const size_t text_bytes = rest.size() - trie_bytes;
  const auto unit_at = [&](size_t index) {
    uint32_t unit = 0;
    std::memcpy(&unit, rest.data() + 4 * index, sizeof(unit));
    return unit;
  };
  constexpr uint32_t kLeaf = 1U << 31;
  for (size_t i = 0; i < units; ++i) {
    const uint32_t unit = unit_at(i);
    if ((unit & kLeaf) != 0 && i != 0) continue;  // no character leads to a leaf; the root is entered without one
    const size_t children = i ^ (size_t{unit >> 10} << ((unit & (1U << 9)) >> 6));
    if ((children | 0xFF) >= units) corrupt(cat("unit ", i, " points outside"));
    if ((unit & (1U << 8)) != 0 && (unit_at(children) & ~kLeaf) >= text_bytes) {
      corrupt(cat("unit ", i, " names a text outside"));
    }
  }
}

}  // namespace

void check_character_maps(std::string_view serialized_model) {
  while (const auto part = take_field(serialized_model)) {
    if (part->number != 3 && part->number != 5) continue;  // normalizer_spec, denormalizer_spec
    std::string_view spec = part->bytes;
    while (const auto field = take_field(spec)) {
      if (field->number == 2) check_character_map(field->bytes);  // precompiled_charsmap
    }
  }
}

}  // namespace ms::train::detail
