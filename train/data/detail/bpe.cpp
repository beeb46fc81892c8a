#include "train/data/detail/bpe.h"

#include <algorithm>
#include <optional>
#include <queue>

#include "core/error.h"
#include "core/io/json.h"
#include "train/data/detail/unicode.h"

namespace ms::train::detail {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

bool stands_for_itself(uint32_t c) {
  return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

struct ByteChars {
  ByteChars() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      chars[byte] = stands_for_itself(byte) ? byte : next++;
      bytes[chars[byte]] = static_cast<int>(byte);
    }
  }
  std::array<uint32_t, 256> chars{};
  std::array<int, 0x144> bytes{};  // 68 bytes do not represent themselves
};

const ByteChars& byte_chars() {
  static const ByteChars table;
  return table;
}

// Raw bytes of a token as the vocabulary writes it; nullopt if a character represents no byte.
std::optional<std::string> raw_bytes(std::string_view token) {
  std::string out;
  if (find_malformed_utf8(token) != token.size()) return std::nullopt;
  while (!token.empty()) {
    const CodePoint c = decode_utf8(token);
    const int byte = byte_of_char(c.value);
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    token.remove_prefix(static_cast<size_t>(c.size_bytes));
  }
  return out;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

void refuse_options(const json& model) {
  const auto refuse = [](const char* what) {
    throw Error(ErrorCode::kUnsupported, cat("model: BPE with ", what, " is not supported"));
  };
  const auto text = [&](const char* key) {
    return model.contains(key) && model[key].is_string() ? model[key].get<std::string>() : std::string();
  };
  if (model.contains("dropout") && model["dropout"].is_number() && model["dropout"] != 0) refuse("dropout");
  if (!text("continuing_subword_prefix").empty()) refuse("continuing_subword_prefix");
  if (!text("end_of_word_suffix").empty()) refuse("end_of_word_suffix");
}

// How a vocabulary with byte_fallback writes a byte: <0x0A>.
std::string fallback_token(size_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
}

bool flag(const json& model, const char* key) {
  return model.contains(key) && !model[key].is_null() && model[key].get<bool>();
}

}  // namespace

uint32_t char_of_byte(uint8_t byte) { return byte_chars().chars[byte]; }
int byte_of_char(uint32_t code_point) {
  return code_point < byte_chars().bytes.size() ? byte_chars().bytes[code_point] : -1;
}

void check_id(int64_t id, size_t tokens, const std::string& name) {
  const auto limit = std::min<int64_t>(static_cast<int64_t>(65536 + 16 * tokens), int64_t{INT32_MAX} + 1);
  if (id >= 0 && id < limit) return;
  throw Error(ErrorCode::kCorruptData, cat("the id of \"", name, "\" is ", id, ": ", tokens,
                                           " tokens have ids from 0 to ", limit - 1, " at most"));
}

BytePairModel::BytePairModel(const json& model, Symbols symbols) : symbols_(symbols) {
  const std::string type = model.value("type", "BPE");
  if (type != "BPE") throw Error(ErrorCode::kUnsupported, cat("model: ", type, " is not supported, only BPE is"));
  refuse_options(model);
  ignore_merges_ = flag(model, "ignore_merges");
  read_vocabulary(model.at("vocab"));
  read_fallback(model);
  read_merges(model.at("merges"));
}

// The token as it appears in text; nullopt if no text contains it.
std::optional<std::string> BytePairModel::spelling(const std::string& token) const {
  return symbols_ == Symbols::kBytes ? raw_bytes(token) : token;
}

void BytePairModel::read_vocabulary(const json& vocab) {
  for (const auto& [token, value] : vocab.items()) {
    const int64_t id = value.is_number_integer() ? value.get<int64_t>() : -1;
    check_id(id, vocab.size(), token);
    const auto spelled = spelling(token);
    if (!spelled || spelled->empty()) continue;  // cannot come from text; at most an added token
    const auto at = static_cast<size_t>(id);
    if (at >= tokens_.size()) tokens_.resize(at + 1);
    tokens_[at] = *spelled;
    ids_[*spelled] = static_cast<int32_t>(id);
    if (symbols_ == Symbols::kBytes) continue;
    const CodePoint first = decode_utf8(*spelled);
    if (static_cast<size_t>(first.size_bytes) == spelled->size())
      character_ids_[first.value] = static_cast<int32_t>(id);
  }
}

void BytePairModel::read_fallback(const json& model) {
  const bool bytes = symbols_ == Symbols::kBytes;
  std::optional<size_t> missing;
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto found = ids_.find(bytes ? std::string(1, static_cast<char>(byte)) : fallback_token(byte));
    byte_ids_[byte] = found == ids_.end() ? -1 : found->second;
    if (found == ids_.end()) missing = byte;
  }
  if (bytes) {
    if (!missing) return;
    throw Error(ErrorCode::kUnsupported,
                cat("model: the vocabulary has no token for byte ", *missing,
                    ", so that text would be lost: byte-level BPE needs an alphabet of all 256 bytes"));
  }
  byte_fallback_ = flag(model, "byte_fallback");
  fuse_unknown_ = flag(model, "fuse_unk");
  if (model.contains("unk_token") && !model["unk_token"].is_null()) {
    const auto name = model["unk_token"].get<std::string>();
    const auto found = ids_.find(name);
    if (found == ids_.end())
      throw Error(ErrorCode::kCorruptData, cat("model: unk_token \"", name, "\" is not in vocab"));
    unknown_ = found->second;
  } else if (!byte_fallback_ || missing) {
    throw Error(ErrorCode::kUnsupported,
                "model: BPE on characters with neither unk_token nor byte_fallback to all 256 bytes would lose text");
  }
}

void BytePairModel::read_merges(const json& merges) {
  int32_t rank = 0;
  for (const json& merge : merges) {
    std::string left, right;
    if (merge.is_array()) {
      left = merge.at(0).get<std::string>();
      right = merge.at(1).get<std::string>();
    } else {
      const auto text = merge.get<std::string>();
      const size_t space = std::min(text.find(' '), text.size());
      left = text.substr(0, space);
      right = text.substr(std::min(space + 1, text.size()));
    }
    const auto id_of = [&](const std::string& spelled) {
      const auto found = ids_.find(spelled);
      if (found == ids_.end()) {
        throw Error(ErrorCode::kCorruptData, cat("merges: number ", rank, ", \"", left, "\" with \"", right,
                                                 "\", has a part or a result that is not in vocab"));
      }
      return found->second;
    };
    const std::string first = spelling(left).value_or("");
    const std::string second = spelling(right).value_or("");
    merges_[pair_key(id_of(first), id_of(second))] = {rank, id_of(first + second)};
    ++rank;
  }
}

// The symbols that merging starts from. A character that the vocabulary lacks becomes its bytes, or the unknown token,
// which is placed among the bytes as the `tokenizers` library does: before the next character that is known.
std::vector<int32_t> BytePairModel::symbols_of(std::string_view word) const {
  std::vector<int32_t> out;
  out.reserve(word.size());
  if (symbols_ == Symbols::kBytes) {
    for (const char c : word) out.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    return out;
  }
  bool unknown = false;  // an unknown token waits to be written
  const auto write_unknown = [&] {
    if (unknown) out.push_back(*unknown_);
    unknown = false;
  };
  while (!word.empty()) {
    const CodePoint c = decode_utf8(word);
    const std::string_view bytes = word.substr(0, static_cast<size_t>(c.size_bytes));
    word.remove_prefix(bytes.size());
    const auto byte_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
    if (const auto found = character_ids_.find(c.value); found != character_ids_.end()) {
      write_unknown();
      out.push_back(found->second);
    } else if (byte_fallback_ && std::all_of(bytes.begin(), bytes.end(), [&](char b) { return byte_id(b) >= 0; })) {
      for (const char byte : bytes) out.push_back(byte_id(byte));
    } else {
      if (!fuse_unknown_) write_unknown();
      unknown = true;
    }
  }
  write_unknown();
  return out;
}

const BytePairModel::Merge* BytePairModel::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairModel::encode_word(std::string_view word, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    if (const auto found = ids_.find(std::string(word)); found != ids_.end()) {
      out.push_back(found->second);
      return;
    }
  }
  // Symbols in a doubly linked list; merged ones have length 0. The queue may hold outdated pairs: their symbols have
  // other ids by then, or none.
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // -1: none
    bool alive;
  };
  struct Candidate {
    int32_t rank, position;
    int32_t left, right, merged;                    // ids
    bool operator<(const Candidate& other) const {  // a priority_queue returns the largest first
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  MS_CHECK(word.size() < INT32_MAX, "a word of ", word.size(), " bytes");
  const std::vector<int32_t> first = symbols_of(word);
  const auto size = static_cast<int32_t>(first.size());
  std::vector<Symbol> symbols(first.size());
  std::priority_queue<Candidate> queue;
  const auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto consider = [&](int32_t position) {
    const int32_t next = position < 0 ? -1 : at(position).next;
    if (next < 0) return;
    if (const Merge* merge = find_merge(at(position).id, at(next).id)) {
      queue.push({merge->rank, position, at(position).id, at(next).id, merge->id});
    }
  };
  for (int32_t i = 0; i < size; ++i) {
    at(i) = {first[static_cast<size_t>(i)], i - 1, i + 1 < size ? i + 1 : -1, true};
  }
  for (int32_t i = 0; i + 1 < size; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = at(best.position);
    if (!left.alive || left.id != best.left || left.next < 0 || at(left.next).id != best.right) continue;
    Symbol& right = at(left.next);
    right.alive = false;
    left.id = best.merged;
    left.next = right.next;
    if (right.next >= 0) at(right.next).previous = best.position;
    consider(left.previous);
    consider(best.position);
  }
  for (int32_t i = 0; i >= 0; i = at(i).next) out.push_back(at(i).id);
}

}  // namespace ms::train::detail
