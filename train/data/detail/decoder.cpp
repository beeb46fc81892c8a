#include "train/data/detail/decoder.h"

#include <charconv>
#include <optional>

#include "core/error.h"
#include "core/io/json.h"
#include "train/data/detail/normalizer.h"
#include "train/data/detail/unicode.h"

namespace ms::train::detail {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

// The byte that a token such as <0x0A> represents.
std::optional<char> fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

// Converts runs of byte tokens to text; a run that is not UTF-8 becomes one U+FFFD per byte, as in the `tokenizers`
// library.
std::vector<std::string> join_bytes(const std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string run;
  const auto end_run = [&] {
    if (run.empty()) return;
    if (find_malformed_utf8(run) != run.size()) {
      std::string replaced;
      for (size_t i = 0; i < run.size(); ++i) append_utf8(0xFFFD, replaced);
      run.swap(replaced);
    }
    out.push_back(std::move(run));
    run.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      run += *byte;
      continue;
    }
    end_run();
    out.push_back(token);
  }
  end_run();
  return out;
}

void strip(std::string& token, const std::string& character, size_t at_begin, size_t at_end) {
  for (; at_begin > 0 && token.starts_with(character); --at_begin) token.erase(0, character.size());
  for (; at_end > 0 && token.ends_with(character); --at_end) token.resize(token.size() - character.size());
}

std::string join(const std::vector<std::string>& tokens, const std::string& separator) {
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) out.append(i == 0 ? "" : separator).append(tokens[i]);
  return out;
}

std::string character(const json& value, const char* what) {
  auto text = value.get<std::string>();
  if (text.empty()) throw Error(ErrorCode::kCorruptData, cat("decoder: ", what, " of an empty character"));
  return text;
}

}  // namespace

Decoder::Decoder(const json& json, bool byte_level) {
  if (!json.is_null()) {
    add(json, byte_level);
  } else if (!byte_level) {
    separator_.assign(1, ' ');  // the library joins tokens this way if there is no decoder
  }
}

void Decoder::add(const json& json, bool byte_level) {
  const auto type = json.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const auto& part : json.at("decoders")) add(part, byte_level);
    return;
  }
  if (byte_level != (type == "ByteLevel")) {
    throw Error(ErrorCode::kUnsupported, cat("decoder: ", type, byte_level ? " after" : " without",
                                             " the pre_tokenizer ByteLevel is not supported"));
  }
  using Kind = Step::Kind;
  if (type == "ByteLevel") {
    return;
  } else if (type == "Replace") {
    steps_.push_back({Kind::kReplace, literal_pattern(json.at("pattern"), "decoder: Replace"),
                      json.at("content").get<std::string>()});
  } else if (type == "ByteFallback") {
    steps_.push_back({Kind::kByteFallback, "", ""});
  } else if (type == "Fuse") {
    steps_.push_back({Kind::kFuse, "", ""});
  } else if (type == "Strip") {
    steps_.push_back({Kind::kStrip, character(json.at("content"), "Strip"), "", json.at("start").get<size_t>(),
                      json.at("stop").get<size_t>()});
  } else if (type == "Metaspace") {
    const bool prepends =
        json.value("prepend_scheme", json.value("add_prefix_space", true) ? "always" : "never") != "never";
    steps_.push_back({Kind::kMetaspace, character(json.at("replacement"), "Metaspace"), " ", prepends ? size_t{1} : 0});
  } else {
    throw Error(ErrorCode::kUnsupported,
                cat("decoder: ", type,
                    " is not supported; supported are ByteLevel, Replace, ByteFallback, Fuse, Strip and Metaspace"));
  }
}

void Decoder::apply(const Step& step, std::vector<std::string>& tokens) {
  switch (step.kind) {
    case Step::Kind::kReplace:
      for (std::string& token : tokens) token = replace_all(token, step.from, step.to);
      break;
    case Step::Kind::kByteFallback:
      tokens = join_bytes(tokens);
      break;
    case Step::Kind::kFuse:
      tokens = {join(tokens, "")};
      break;
    case Step::Kind::kStrip:
      for (std::string& token : tokens) strip(token, step.from, step.at_begin, step.at_end);
      break;
    case Step::Kind::kMetaspace:
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = replace_all(tokens[i], step.from, i == 0 && step.at_begin > 0 ? "" : step.to);
      }
      break;
  }
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) apply(step, tokens);
  return join(tokens, separator_);
}

}  // namespace ms::train::detail
