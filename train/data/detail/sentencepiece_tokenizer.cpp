#include "train/data/detail/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <filesystem>
#include <unordered_map>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "kernels/checksum.h"
#include "train/data/detail/added_tokens.h"
#include "train/data/detail/unicode.h"

namespace ms::train::detail {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using Kind = SentencePieceTokenizer::Kind;

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kSentencePiece:
      return "SentencePieceTokenizer";
    case Kind::kGpt:
      return "GPTSentencePieceTokenizer";
    case Kind::kLlama2:
      return "Llama2Tokenizer";
  }
  MS_CHECK(false, "kind ", static_cast<int>(kind));
}

}  // namespace

struct SentencePieceModel {
  SentencePieceModel(Kind k, const std::string& bytes, int64_t vocab_extra_ids) : kind(k) {
    check_character_maps(bytes);
    try {
      const auto status = processor.LoadFromSerializedProto(bytes);
      if (!status.ok()) throw Error(ErrorCode::kCorruptData, cat("not a model of SentencePiece: ", status.ToString()));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {  // the library builds a trie of the pieces
      throw Error(ErrorCode::kCorruptData, cat("not a model of SentencePiece: ", e.what()));
    }
    vocab_size = processor.GetPieceSize();
    if (processor.eos_id() >= 0) eod = processor.eos_id();
    if (kind == Kind::kSentencePiece) add_megatrons_tokens(vocab_extra_ids);
    if (kind == Kind::kLlama2 && processor.bos_id() < 0) {
      throw Error(ErrorCode::kUnsupported,
                  "Llama2Tokenizer begins each text with <s>, which this model does not have. "
                  "Use GPTSentencePieceTokenizer");
    }
    description =
        cat(name_of(kind), " ", core::hex16(kernels::xxh3(bytes.data(), bytes.size())), " extra ids ", vocab_extra_ids);
  }

  void add_megatrons_tokens(int64_t vocab_extra_ids) {
    const auto piece_or = [&](int id, const char* otherwise) {
      return id >= 0 ? processor.IdToPiece(id) : std::string(otherwise);
    };
    for (const char* name : {"<CLS>", "<SEP>", "<EOD>", "<MASK>"}) add_special(name);
    add_special(piece_or(processor.pad_id(), "<PAD>"));
    add_special(piece_or(processor.bos_id(), "<BOS>"));
    add_special(piece_or(processor.eos_id(), "<EOS>"));
    for (int64_t i = 0; i < vocab_extra_ids; ++i) add_special(cat("<extra_id_", i, ">"));
    for (const auto& [id, name] : special_names) {
      if (name == "<EOD>") eod = id;
    }
  }

  void add_special(const std::string& name) {
    int32_t id = processor.PieceToId(name);
    const bool known = id != processor.unk_id() || processor.IdToPiece(id) == name;
    if (!known) id = static_cast<int32_t>(vocab_size++);
    if (special_names.emplace(id, name).second) special.add({name, id});
  }

  Kind kind;
  sentencepiece::SentencePieceProcessor processor;
  int64_t vocab_size = 0;
  std::optional<int32_t> eod;
  AddedTokens special;
  std::unordered_map<int32_t, std::string> special_names;
  std::string description;
};

SentencePieceTokenizer::SentencePieceTokenizer(Kind kind, const std::string& path, int64_t vocab_extra_ids) {
  if (vocab_extra_ids < 0 || vocab_extra_ids > 1 << 20) {
    throw Error(ErrorCode::kInvalidArgument, cat("--vocab-extra-ids ", vocab_extra_ids, ": expected 0 to 1048576"));
  }
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const std::string file = folder ? (std::filesystem::path(path) / "tokenizer.model").string() : path;
  const std::string bytes = core::read_text(file, kMaxFileBytes);
  try {
    model_ = std::make_shared<SentencePieceModel>(kind, bytes, vocab_extra_ids);
  } catch (const Error& e) {
    throw e.within(file);
  }
}

void SentencePieceTokenizer::encode(std::string_view text, std::vector<int32_t>& out) {
  std::string repaired;
  if (find_malformed_utf8(text) != text.size()) {
    int64_t replaced = 0;
    repaired = replace_malformed_utf8(text, replaced);
    text = repaired;
  }
  const auto encode_piece = [&](std::string_view piece) {
    std::vector<int> ids;
    const auto status = model_->processor.Encode(piece, &ids);
    MS_CHECK(status.ok(), status.ToString());
    out.insert(out.end(), ids.begin(), ids.end());
  };
  if (model_->kind == Kind::kLlama2) out.push_back(model_->processor.bos_id());
  size_t from = 0;
  for (AddedTokens::Match match{}; model_->special.find(text, from, match); from = match.end) {
    encode_piece(text.substr(from, match.begin - from));
    out.push_back(match.id);
  }
  encode_piece(text.substr(from));
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  std::vector<int> run;
  const auto decode_run = [&] {
    std::string text;
    const auto status = model_->processor.Decode(run, &text);
    MS_CHECK(status.ok(), status.ToString());
    out += text;
    run.clear();
  };
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("token id ", id, " is not below the vocabulary size ", vocab_size()));
    }
    if (id == model_->eod) continue;
    const auto special = model_->special_names.find(id);
    if (special == model_->special_names.end()) {
      run.push_back(id);
      continue;
    }
    decode_run();
    out.append(" ").append(special->second).append(" ");  // separated by spaces, as in Megatron
  }
  decode_run();
  return out;
}

int64_t SentencePieceTokenizer::vocab_size() const { return model_->vocab_size; }
std::optional<int32_t> SentencePieceTokenizer::eod() const { return model_->eod; }
std::string SentencePieceTokenizer::description() const { return model_->description; }
std::unique_ptr<Tokenizer> SentencePieceTokenizer::fork() const {
  return std::unique_ptr<Tokenizer>(new SentencePieceTokenizer(model_));
}

}  // namespace ms::train::detail
