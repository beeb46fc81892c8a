// Byte-pair encoding (Sennrich et al., arXiv 1508.07909): a word starts as its smallest symbols; then the adjacent pair
// that was merged earliest in training is merged, leftmost first, until no known pair is left.
//
// The symbols are bytes (GPT-2, Llama 3, Qwen), or characters with bytes as a fallback (models converted from
// SentencePiece: Llama 2, Mistral, Gemma).
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ms::train::detail {

// The character that byte-level vocabularies write for a byte (itself if printable, otherwise one from U+0100 on), and
// its inverse; -1 for a character that represents no byte.
uint32_t char_of_byte(uint8_t byte);
int byte_of_char(uint32_t code_point);

// Throws kCorruptData unless id is plausible for a vocabulary of so many tokens: ids are nearly dense, and tables
// indexed by id are as long as the largest one.
void check_id(int64_t id, size_t tokens, const std::string& name);

class BytePairModel {
 public:
  enum class Symbols { kBytes, kCharacters };

  // json: the "model" of a tokenizer.json. Throws kUnsupported (another model, options that change the result, a
  // vocabulary that would lose text), kCorruptData (a merge of unknown tokens), nlohmann's exceptions for a wrong
  // structure.
  BytePairModel(const nlohmann::json& json, Symbols symbols);

  // Appends the ids of one word: with kBytes any bytes, with kCharacters well-formed UTF-8. O(n log n).
  void encode_word(std::string_view word, std::vector<int32_t>& out) const;

  // Each token by id: with kBytes the bytes it represents, with kCharacters as the vocabulary writes it. Empty for an
  // unused id.
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  void read_vocabulary(const nlohmann::json& vocab);
  void read_merges(const nlohmann::json& merges);
  void read_fallback(const nlohmann::json& model);
  std::optional<std::string> spelling(const std::string& token) const;
  std::vector<int32_t> symbols_of(std::string_view word) const;
  const Merge* find_merge(int32_t left, int32_t right) const;

  Symbols symbols_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<uint64_t, Merge> merges_;
  std::unordered_map<uint32_t, int32_t> character_ids_;
  std::array<int32_t, 256> byte_ids_{};  // ids of "<0x41>" and so on if the symbols are characters; -1: none
  std::optional<int32_t> unknown_;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
};

}  // namespace ms::train::detail
