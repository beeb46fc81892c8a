#include "train/data/detail/huggingface_tokenizer.h"

#include <deque>
#include <filesystem>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "kernels/checksum.h"
#include "train/data/detail/added_tokens.h"
#include "train/data/detail/bpe.h"
#include "train/data/detail/decoder.h"
#include "train/data/detail/normalizer.h"
#include "train/data/detail/pre_tokenizer.h"
#include "train/data/detail/unicode.h"

namespace ms::train::detail {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr size_t kMaxCachedWordBytes = 64;
constexpr size_t kMaxCachedWords = 1 << 16;

// Reads the ids that the post-processor adds before and after a single text.
void read_post_processor(const json& processor, std::vector<int32_t>& before, std::vector<int32_t>& after) {
  if (processor.is_null()) return;
  const auto type = processor.at("type").get<std::string>();
  if (type == "ByteLevel") return;  // offsets only
  if (type == "Sequence") {
    for (const json& part : processor.at("processors")) read_post_processor(part, before, after);
    return;
  }
  if (type != "TemplateProcessing") {
    throw Error(ErrorCode::kUnsupported,
                cat("post_processor: ", type, " is not supported; supported are ByteLevel and TemplateProcessing"));
  }
  bool text_seen = false;
  for (const json& part : processor.at("single")) {
    if (part.contains("Sequence")) {
      text_seen = true;
      continue;
    }
    const auto name = part.at("SpecialToken").at("id").get<std::string>();
    auto& to = text_seen ? after : before;
    for (const json& id : processor.at("special_tokens").at(name).at("ids")) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
        throw Error(ErrorCode::kCorruptData, cat("post_processor: \"", name, "\" has the id ", id.dump()));
      }
      to.push_back(id.get<int32_t>());
    }
  }
}

std::string read_json_text(const std::string& path) { return core::read_text(path, kMaxFileBytes); }

// The text of eos_token in tokenizer_config.json or special_tokens_map.json, which store it in one of two forms.
std::string eos_of(const std::filesystem::path& folder) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = (folder / name).string();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;
    const json config = core::parse_json(read_json_text(path), path);
    if (!config.is_object() || !config.contains("eos_token")) continue;
    const json& eos = config["eos_token"];
    if (eos.is_string()) return eos.get<std::string>();
    if (eos.is_object() && eos.contains("content") && eos["content"].is_string()) return eos["content"];
  }
  return {};
}

}  // namespace

struct HuggingFaceModel {
  explicit HuggingFaceModel(const json& tokenizer)
      : pre_tokenizer(part(tokenizer, "pre_tokenizer")),
        bpe(tokenizer.at("model"),
            pre_tokenizer.byte_level() ? BytePairModel::Symbols::kBytes : BytePairModel::Symbols::kCharacters),
        normalizer(part(tokenizer, "normalizer")),
        decoder(part(tokenizer, "decoder"), pre_tokenizer.byte_level()) {
    tokens = bpe.tokens();
    if (tokenizer.contains("added_tokens") && !tokenizer["added_tokens"].is_null()) {
      const json& added_tokens = tokenizer["added_tokens"];
      const size_t in_all = tokenizer["model"]["vocab"].size() + added_tokens.size();
      for (const json& token : added_tokens) add(token, in_all);
    }
    if (tokenizer.contains("post_processor")) read_post_processor(tokenizer["post_processor"], before, after);
    for (const auto* ids : {&before, &after}) {
      for (const int32_t id : *ids) {
        if (id < 0 || static_cast<size_t>(id) >= tokens.size()) {
          throw Error(ErrorCode::kCorruptData, cat("post_processor: id ", id, " is not in the vocabulary"));
        }
      }
    }
  }

  static json part(const json& tokenizer, const char* name) {
    return tokenizer.contains(name) ? tokenizer[name] : json();
  }

  // in_all: number of tokens of the vocabulary and added ones.
  void add(const json& json_token, size_t in_all) {
    AddedToken token;
    token.content = json_token.at("content").get<std::string>();
    const int64_t id = core::json_integer(json_token, "id", "added_tokens");
    check_id(id, in_all, token.content);
    token.id = static_cast<int32_t>(id);
    token.lstrip = json_token.value("lstrip", false);
    token.rstrip = json_token.value("rstrip", false);
    if (json_token.value("single_word", false)) {
      throw Error(ErrorCode::kUnsupported,
                  cat("added_tokens: \"", token.content, "\" is single_word, which is not supported"));
    }
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
    names[token.content] = token.id;
    const bool special = json_token.value("special", false);
    const bool normalized = json_token.value("normalized", !special);
    std::string normal;
    if (normalized && normalizer.normalize(token.content, normal)) token.content = normal;
    tokens[static_cast<size_t>(id)] = token.content;
    (normalized ? added_after_normalizing : added).add(std::move(token));
  }

  PreTokenizer pre_tokenizer;
  BytePairModel bpe;
  Normalizer normalizer;
  Decoder decoder;
  AddedTokens added, added_after_normalizing;
  std::unordered_map<std::string, int32_t> names;  // added tokens by content
  std::vector<std::string> tokens;                 // by id, for the decoder
  std::vector<int32_t> before, after;
  std::optional<int32_t> eod;
  std::string description;
};

namespace {

// The id of a token by its name: first among the added ones, then in the vocabulary.
std::optional<int32_t> id_of(const HuggingFaceModel& model, const json& tokenizer, const std::string& name) {
  if (const auto found = model.names.find(name); found != model.names.end()) return found->second;
  const json& vocab = tokenizer["model"]["vocab"];
  if (const auto found = vocab.find(name); found != vocab.end()) return found->get<int32_t>();
  return std::nullopt;
}

std::string hash_of(const std::string& text) { return core::hex16(kernels::xxh3(text.data(), text.size())); }

// eos: the name of the end-of-document token; empty: the first of the usual names.
std::shared_ptr<HuggingFaceModel> make_model(const json& tokenizer, const std::string& eos) {
  if (!tokenizer.is_object() || !tokenizer.contains("model")) {
    throw Error(ErrorCode::kCorruptData, "no \"model\": not a tokenizer.json");
  }
  auto model = std::make_shared<HuggingFaceModel>(tokenizer);
  if (!eos.empty()) {
    model->eod = id_of(*model, tokenizer, eos);
    if (!model->eod) throw Error(ErrorCode::kCorruptData, cat("eos_token \"", eos, "\" is not in the vocabulary"));
  }
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>"}) {
    if (!model->eod) model->eod = id_of(*model, tokenizer, name);
  }
  return model;
}

std::shared_ptr<const HuggingFaceModel> load_model(const std::string& where) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(where, ignored);
  const std::string path = folder ? (std::filesystem::path(where) / "tokenizer.json").string() : where;
  const std::string text = read_json_text(path);
  const json tokenizer = core::parse_json(text, path);
  try {
    const auto model = make_model(tokenizer, eos_of(std::filesystem::path(path).parent_path()));
    model->description = cat("HuggingFaceTokenizer ", hash_of(text), " eod ", model->eod.value_or(-1));
    return model;
  } catch (const json::exception& e) {
    throw Error(ErrorCode::kCorruptData, cat(path, ": ", e.what()));
  } catch (const Error& e) {
    throw e.within(path);
  }
}

// The lines of a merges.txt after the first, which holds the version. Megatron drops the first line whatever it
// contains.
json read_merges(const std::string& text, const std::string& path) {
  json merges = json::array();
  if (!text.starts_with("#version")) {
    throw Error(ErrorCode::kCorruptData,
                cat(path, " does not begin with #version: put the line \"#version: 0.2\" before the merges"));
  }
  if (const size_t bad = find_malformed_utf8(text); bad != text.size()) {
    throw Error(ErrorCode::kCorruptData, cat(path, " is not UTF-8 at byte ", bad));
  }
  for (size_t at = text.find('\n'); at != std::string::npos && ++at < text.size(); at = text.find('\n', at)) {
    std::string line = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) merges.push_back(std::move(line));
  }
  return merges;
}

std::shared_ptr<const HuggingFaceModel> load_gpt2(const std::string& vocab_file, const std::string& merge_file) {
  const std::string vocab = read_json_text(vocab_file);
  const std::string merges = read_json_text(merge_file);
  const json tokenizer = {
      {"model",
       {{"type", "BPE"}, {"vocab", core::parse_json(vocab, vocab_file)}, {"merges", read_merges(merges, merge_file)}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}};
  try {
    const auto model = make_model(tokenizer, "");
    model->description =
        cat("GPT2BPETokenizer ", hash_of(vocab), " ", hash_of(merges), " eod ", model->eod.value_or(-1));
    return model;
  } catch (const json::exception& e) {
    throw Error(ErrorCode::kCorruptData, cat(vocab_file, " and ", merge_file, ": ", e.what()));
  } catch (const Error& e) {
    throw e.within(cat(vocab_file, " and ", merge_file));
  }
}

}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(const std::string& vocab_file, const std::string& merge_file)
    : model_(load_gpt2(vocab_file, merge_file)) {}
HuggingFaceTokenizer::HuggingFaceTokenizer(const std::string& path) : model_(load_model(path)) {}

void HuggingFaceTokenizer::encode_words(std::string_view text, bool at_start, std::vector<int32_t>& out) {
  std::vector<std::string_view> words;
  std::deque<std::string> storage;
  model_->pre_tokenizer.split(text, at_start, words, storage);
  for (const std::string_view word : words) {
    if (word.size() > kMaxCachedWordBytes) {
      model_->bpe.encode_word(word, out);
      continue;
    }
    key_.assign(word);
    auto found = cache_.find(key_);
    if (found == cache_.end()) {
      if (cache_.size() >= kMaxCachedWords) cache_.clear();
      std::vector<int32_t> ids;
      model_->bpe.encode_word(word, ids);
      found = cache_.emplace(key_, std::move(ids)).first;
    }
    out.insert(out.end(), found->second.begin(), found->second.end());
  }
}

namespace {

// Calls between(piece) for the text between added tokens, and appends the ids of those.
template <class Between>
void for_each_piece(const AddedTokens& added, std::string_view text, std::vector<int32_t>& out, Between between) {
  size_t from = 0;
  for (AddedTokens::Match match{}; added.find(text, from, match); from = match.end) {
    between(text.substr(from, match.begin - from));
    out.push_back(match.id);
  }
  between(text.substr(from));
}

}  // namespace

void HuggingFaceTokenizer::encode(std::string_view text, std::vector<int32_t>& out) {
  std::string repaired;
  if (find_malformed_utf8(text) != text.size()) {
    int64_t replaced = 0;
    repaired = replace_malformed_utf8(text, replaced);
    text = repaired;
  }
  out.insert(out.end(), model_->before.begin(), model_->before.end());
  for_each_piece(model_->added, text, out, [&](std::string_view piece) {
    const bool first = piece.data() == text.data();
    std::string normal;
    if (model_->normalizer.normalize(piece, normal)) piece = normal;
    for_each_piece(model_->added_after_normalizing, piece, out,
                   [&](std::string_view rest) { encode_words(rest, first && rest.data() == piece.data(), out); });
  });
  out.insert(out.end(), model_->after.begin(), model_->after.end());
}

std::string HuggingFaceTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("token id ", id, " is not below the vocabulary size ", vocab_size()));
    }
    if (id != model_->eod) tokens.push_back(model_->tokens[static_cast<size_t>(id)]);
  }
  return model_->decoder.decode(std::move(tokens));
}

int64_t HuggingFaceTokenizer::vocab_size() const { return static_cast<int64_t>(model_->tokens.size()); }
std::optional<int32_t> HuggingFaceTokenizer::eod() const { return model_->eod; }
std::string HuggingFaceTokenizer::description() const { return model_->description; }
std::unique_ptr<Tokenizer> HuggingFaceTokenizer::fork() const {
  return std::unique_ptr<Tokenizer>(new HuggingFaceTokenizer(model_));
}

}  // namespace ms::train::detail
