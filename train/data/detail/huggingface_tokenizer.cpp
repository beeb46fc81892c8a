#include "train/data/detail/huggingface_tokenizer.h"

#include <deque>
#include <filesystem>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/io/file.h"
#include "kernels/checksum.h"
#include "train/data/detail/added_tokens.h"
#include "train/data/detail/bpe.h"
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

// True for NFC, false for none. Throws kUnsupported for any other.
bool wants_nfc(const json& normalizer) {
  if (normalizer.is_null()) return false;
  const auto type = normalizer.at("type").get<std::string>();
  if (type == "NFC") return true;
  if (type == "Sequence") {
    bool nfc = false;
    for (const json& part : normalizer.at("normalizers")) nfc |= wants_nfc(part);
    return nfc;
  }
  throw Error(ErrorCode::kUnsupported, cat("normalizer: ", type, " is not built in: known are none and NFC"));
}

// Ids that the post-processor puts before and after a single text.
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
                cat("post_processor: ", type, " is not built in: known are ByteLevel and TemplateProcessing"));
  }
  bool text_seen = false;
  for (const json& part : processor.at("single")) {
    if (part.contains("Sequence")) {
      text_seen = true;
      continue;
    }
    const auto name = part.at("SpecialToken").at("id").get<std::string>();
    const auto ids = processor.at("special_tokens").at(name).at("ids").get<std::vector<int32_t>>();
    auto& to = text_seen ? after : before;
    to.insert(to.end(), ids.begin(), ids.end());
  }
}

std::string read_json_text(const std::string& path) { return core::read_text(path, kMaxFileBytes); }

json parse(const std::string& text, const std::string& path) {
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    throw Error(ErrorCode::kCorruptData, cat(path, " is not JSON: ", e.what()));
  }
}

// The text of eos_token in tokenizer_config.json or special_tokens_map.json, which write it in two ways.
std::string eos_of(const std::filesystem::path& folder) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = (folder / name).string();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;
    const json config = parse(read_json_text(path), path);
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
      : bpe(tokenizer.at("model")),
        pre_tokenizer(tokenizer.at("pre_tokenizer")),
        nfc(wants_nfc(tokenizer.contains("normalizer") ? tokenizer["normalizer"] : json())) {
    tokens = bpe.tokens();
    if (tokenizer.contains("added_tokens") && !tokenizer["added_tokens"].is_null()) {
      for (const json& token : tokenizer["added_tokens"]) add(token);
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

  void add(const json& json_token) {
    AddedToken token;
    token.content = json_token.at("content").get<std::string>();
    const auto id = json_token.at("id").get<int64_t>();
    if (id < 0 || id > 1 << 28) {
      throw Error(ErrorCode::kCorruptData, cat("added_tokens: the id of \"", token.content, "\" is ", id));
    }
    token.id = static_cast<int32_t>(id);
    token.lstrip = json_token.value("lstrip", false);
    token.rstrip = json_token.value("rstrip", false);
    if (json_token.value("single_word", false)) {
      throw Error(ErrorCode::kUnsupported,
                  cat("added_tokens: \"", token.content, "\" is single_word, which is not built in"));
    }
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
    tokens[static_cast<size_t>(id)] = token.content;
    names[token.content] = token.id;
    const bool special = json_token.value("special", false);
    if (json_token.value("normalized", !special)) {
      std::string normal;
      if (nfc && normalize_nfc(token.content, normal)) token.content = normal;
      added_after_normalizing.add(std::move(token));
    } else {
      added.add(std::move(token));
    }
  }

  BytePairModel bpe;
  PreTokenizer pre_tokenizer;
  bool nfc;
  AddedTokens added, added_after_normalizing;
  std::unordered_map<std::string, int32_t> names;  // added tokens by content
  std::vector<std::string> tokens;                 // bytes by id
  std::vector<int32_t> before, after;
  std::optional<int32_t> eod;
  std::string description;
};

namespace {

std::shared_ptr<const HuggingFaceModel> load_model(const std::string& where) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(where, ignored);
  const std::string path = folder ? (std::filesystem::path(where) / "tokenizer.json").string() : where;
  const std::string text = read_json_text(path);
  const json tokenizer = parse(text, path);
  std::shared_ptr<HuggingFaceModel> model;
  try {
    if (!tokenizer.is_object() || !tokenizer.contains("model") || !tokenizer.contains("pre_tokenizer")) {
      throw Error(ErrorCode::kCorruptData, "no \"model\" or no \"pre_tokenizer\": not a tokenizer.json");
    }
    model = std::make_shared<HuggingFaceModel>(tokenizer);
    const std::string eos = eos_of(std::filesystem::path(path).parent_path());
    const auto id_of = [&](const std::string& name) -> std::optional<int32_t> {
      if (const auto found = model->names.find(name); found != model->names.end()) return found->second;
      const json& vocab = tokenizer["model"]["vocab"];
      if (const auto found = vocab.find(name); found != vocab.end()) return found->get<int32_t>();
      return std::nullopt;
    };
    if (!eos.empty()) {
      model->eod = id_of(eos);
      if (!model->eod) throw Error(ErrorCode::kCorruptData, cat("eos_token \"", eos, "\" is not in the vocabulary"));
    } else {
      for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>"}) {
        if (!model->eod) model->eod = id_of(name);
      }
    }
  } catch (const json::exception& e) {
    throw Error(ErrorCode::kCorruptData, cat(path, ": ", e.what()));
  } catch (const Error& e) {
    throw e.within(path);
  }
  std::ostringstream hash;
  hash << std::hex << std::setw(16) << std::setfill('0') << kernels::xxh3(text.data(), text.size());
  model->description = cat("HuggingFaceTokenizer ", hash.str(), " eod ", model->eod.value_or(-1));
  return model;
}

}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(const std::string& path) : model_(load_model(path)) {}

void HuggingFaceTokenizer::encode_words(std::string_view text, std::vector<int32_t>& out) {
  std::vector<std::string_view> words;
  std::deque<std::string> storage;
  model_->pre_tokenizer.split(text, words, storage);
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

// Calls between(piece) for what lies between the added tokens of text, and appends the ids of those.
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
    std::string normal;
    if (model_->nfc && normalize_nfc(piece, normal)) piece = normal;
    for_each_piece(model_->added_after_normalizing, piece, out,
                   [&](std::string_view rest) { encode_words(rest, out); });
  });
  out.insert(out.end(), model_->after.begin(), model_->after.end());
}

std::string HuggingFaceTokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("token id ", id, " is not below the vocabulary size ", vocab_size()));
    }
    if (id != model_->eod) out += model_->tokens[static_cast<size_t>(id)];
  }
  return out;
}

int64_t HuggingFaceTokenizer::vocab_size() const { return static_cast<int64_t>(model_->tokens.size()); }
std::optional<int32_t> HuggingFaceTokenizer::eod() const { return model_->eod; }
std::string HuggingFaceTokenizer::description() const { return model_->description; }
std::unique_ptr<Tokenizer> HuggingFaceTokenizer::fork() const {
  return std::unique_ptr<Tokenizer>(new HuggingFaceTokenizer(model_));
}

}  // namespace ms::train::detail
