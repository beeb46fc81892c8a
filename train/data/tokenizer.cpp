#include "train/data/tokenizer.h"

#include "core/error.h"
#include "train/data/detail/huggingface_tokenizer.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

class ByteLevelTokenizer : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    const size_t first = out.size();
    out.resize(first + text.size());
    for (size_t i = 0; i < text.size(); ++i) out[first + i] = static_cast<uint8_t>(text[i]);
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id > kEod) {
        throw Error(ErrorCode::kInvalidArgument, cat("token id ", id, " is not below the vocabulary size ", kEod + 1));
      }
      if (id != kEod) text += static_cast<char>(id);
    }
    return text;
  }
  int64_t vocab_size() const override { return kEod + 1; }
  std::optional<int32_t> eod() const override { return kEod; }
  std::string description() const override { return "ByteLevelTokenizer"; }
  std::unique_ptr<Tokenizer> fork() const override { return std::make_unique<ByteLevelTokenizer>(); }

 private:
  static constexpr int32_t kEod = 256;
};

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) {
  std::vector<int32_t> out;
  encode(text, out);
  return out;
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view type, const std::string& model) {
  if (type == "ByteLevelTokenizer") {
    if (!model.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--tokenizer-model ", model,
                      " with --tokenizer-type ByteLevelTokenizer, which has none. Add --tokenizer-type "
                      "HuggingFaceTokenizer"));
    }
    return std::make_unique<ByteLevelTokenizer>();
  }
  if (type == "HuggingFaceTokenizer" || type == "PretrainedFromHF") {
    if (model.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--tokenizer-type ", type, " needs --tokenizer-model: a tokenizer.json or its folder"));
    }
    return std::make_unique<detail::HuggingFaceTokenizer>(model);
  }
  throw Error(ErrorCode::kInvalidArgument, cat("--tokenizer-type ", type,
                                               ": expected ByteLevelTokenizer, HuggingFaceTokenizer or "
                                               "PretrainedFromHF"));
}

}  // namespace ms::train
