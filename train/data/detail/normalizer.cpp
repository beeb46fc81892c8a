#include "train/data/detail/normalizer.h"

#include "core/error.h"
#include "core/io/json.h"
#include "train/data/detail/unicode.h"

namespace ms::train::detail {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string_view::npos; found = text.find(from, at)) {
    out.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  return out.append(text, at);
}

std::string literal_pattern(const json& pattern, std::string_view what) {
  if (!pattern.contains("String")) {
    throw Error(ErrorCode::kUnsupported, cat(what, " by the pattern ", pattern.dump(), " is not built in"));
  }
  auto text = pattern.at("String").get<std::string>();
  if (text.empty()) throw Error(ErrorCode::kUnsupported, cat(what, " by an empty pattern is not built in"));
  return text;
}

Normalizer::Normalizer(const json& described) {
  if (!described.is_null()) add(described);
}

void Normalizer::add(const json& described) {
  const auto type = described.at("type").get<std::string>();
  if (type == "NFC") {
    steps_.push_back({Step::Kind::kNfc, "", ""});
  } else if (type == "Prepend") {
    steps_.push_back({Step::Kind::kPrepend, "", described.at("prepend").get<std::string>()});
  } else if (type == "Replace") {
    steps_.push_back({Step::Kind::kReplace, literal_pattern(described.at("pattern"), "normalizer: Replace"),
                      described.at("content").get<std::string>()});
  } else if (type == "Sequence") {
    for (const auto& part : described.at("normalizers")) add(part);
  } else {
    throw Error(ErrorCode::kUnsupported,
                cat("normalizer: ", type, " is not built in: known are NFC, Prepend, Replace and a Sequence of them"));
  }
}

bool Normalizer::apply(const Step& step, std::string_view text, std::string& out) {
  switch (step.kind) {
    case Step::Kind::kNfc:
      return normalize_nfc(text, out);
    case Step::Kind::kPrepend:
      if (text.empty()) return false;
      out = cat(step.to, text);
      return true;
    case Step::Kind::kReplace:
      if (text.find(step.from) == std::string_view::npos) return false;
      out = replace_all(text, step.from, step.to);
      return true;
  }
  MS_CHECK(false, "normalizer step ", static_cast<int>(step.kind));
}

bool Normalizer::normalize(std::string_view text, std::string& out) const {
  bool changed = false;
  std::string next;
  for (const Step& step : steps_) {
    if (!apply(step, changed ? std::string_view(out) : text, next)) continue;
    out.swap(next);
    changed = true;
  }
  return changed;
}

}  // namespace ms::train::detail
