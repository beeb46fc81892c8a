// Written GGUF files: names, values, llama.cpp's row order, and the tokenizer. gguf_test.py checks that ggml's own
// package reads the same.
#include "convert/gguf_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "convert/convert.h"
#include "convert/safetensors.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::cat;
using core::ErrorCode;
using testing::Contains;
using testing::HasSubstr;

// Parses a file by the format's definition.
class Gguf {
 public:
  explicit Gguf(const std::string& path) : bytes_(test::read_file(path)) {
    EXPECT_EQ(bytes_.substr(0, 4), "GGUF");
    at_ = 8;
    const auto tensors = number<uint64_t>(), pairs = number<uint64_t>();
    for (uint64_t i = 0; i < pairs; ++i) {
      const std::string key = text();
      values_[key] = value(number<uint32_t>());
    }
    for (uint64_t i = 0; i < tensors; ++i) {
      const std::string name = text();
      uint64_t elements = 1;
      for (uint32_t axes = number<uint32_t>(); axes > 0; --axes) elements *= number<uint64_t>();
      types_[name] = number<uint32_t>();
      places_[name] = {number<uint64_t>(), elements};
    }
    data_ = (at_ + 31) / 32 * 32;
  }
  uint32_t type(const std::string& name) const { return types_.at(name); }
  std::string data(const std::string& name, size_t item) const {
    const auto& [offset, elements] = places_.at(name);
    return bytes_.substr(data_ + offset, elements * item);
  }
  const std::vector<std::string>& value_of(const std::string& key) const { return values_.at(key); }
  bool has(const std::string& key) const { return values_.contains(key); }
  size_t tensors() const { return types_.size(); }

 private:
  template <class T>
  T number() {
    T made;
    std::memcpy(&made, bytes_.data() + at_, sizeof made);
    at_ += sizeof made;
    return made;
  }
  std::string text() {
    const auto size = number<uint64_t>();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  std::vector<std::string> value(uint32_t type) {
    if (type == 8) return {text()};
    if (type == 6) return {std::to_string(number<float>())};
    if (type == 7) return {std::to_string(number<uint8_t>())};
    if (type != 9) return {std::to_string(number<uint32_t>())};
    std::vector<std::string> all;
    const auto inner = number<uint32_t>();
    for (uint64_t count = number<uint64_t>(); count > 0; --count) all.push_back(value(inner)[0]);
    return all;
  }
  std::string bytes_;
  size_t at_ = 0, data_ = 0;
  std::map<std::string, std::vector<std::string>> values_;
  std::map<std::string, uint32_t> types_;
  std::map<std::string, std::pair<uint64_t, uint64_t>> places_;
};

class GgufTargetTest : public testing::Test {
 protected:
  ConvertOptions options(const std::string& folder) {
    ConvertOptions options;
    options.load_dir = folder;
    options.save_dir = folder_ / "gguf";
    options.save_model_type = Format::kGguf;
    return options;
  }
  const test::TemporaryFolder folder_;
};

std::string tensor_of(const std::string& folder, const std::string& name) {
  const SafetensorsReader reader(folder + "/model.safetensors");
  const auto found = reader.header()[*reader.header().find(name)];
  std::string bytes(found.end - found.begin, '\0');
  reader.read(found.begin, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST_F(GgufTargetTest, LlamaHasPermutedHeadsAndItsNames) {
  const std::string model = cat(MS_TEST_DATA, "/hf_llama_tiny");  // bf16, 4 heads of 4, 16 columns
  const ConvertReport report = convert_checkpoint(options(model));
  EXPECT_EQ(report.path, folder_ / "gguf/model.gguf");
  EXPECT_THAT(report.decisions, Contains(HasSubstr("the file gets no tokenizer")));
  const Gguf file(report.path);
  EXPECT_EQ(file.tensors(), 21U);
  EXPECT_EQ(file.value_of("general.architecture")[0], "llama");
  EXPECT_EQ(file.value_of("general.file_type")[0], "32");
  EXPECT_EQ(file.value_of("llama.attention.head_count_kv")[0], "2");
  EXPECT_EQ(file.type("token_embd.weight"), 30U);
  EXPECT_EQ(file.data("token_embd.weight", 2), tensor_of(model, "model.embed_tokens.weight"));
  EXPECT_EQ(file.data("blk.1.ffn_down.weight", 2), tensor_of(model, "model.layers.1.mlp.down_proj.weight"));
  EXPECT_EQ(file.data("blk.1.attn_v.weight", 2), tensor_of(model, "model.layers.1.self_attn.v_proj.weight"));
  const std::string query = tensor_of(model, "model.layers.1.self_attn.q_proj.weight");
  std::string ordered;
  for (size_t row = 0; row < 16; ++row) ordered += query.substr((row / 4 * 4 + row % 2 * 2 + row % 4 / 2) * 32, 32);
  EXPECT_EQ(file.data("blk.1.attn_q.weight", 2), ordered);
  EXPECT_EQ(file.type("output_norm.weight"), 0U);
  const std::string norm = tensor_of(model, "model.norm.weight"), wide = file.data("output_norm.weight", 4);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(wide.substr(4 * i, 4), std::string(2, '\0') + norm.substr(2 * i, 2));
  EXPECT_EQ(test::code_of([&] { convert_checkpoint(options(model)); }), ErrorCode::kInvalidArgument);  // it exists
}

TEST_F(GgufTargetTest, ExpertsOfALayerAreInOneTensor) {
  const std::string model = cat(MS_TEST_DATA, "/hf_mixtral_tiny");  // bf16, four experts
  const Gguf file(convert_checkpoint(options(model)).path);
  EXPECT_EQ(file.value_of("general.architecture")[0], "llama");
  EXPECT_EQ(file.value_of("llama.expert_count")[0], "4");
  EXPECT_EQ(file.value_of("llama.expert_used_count")[0], "2");
  EXPECT_EQ(file.type("blk.1.ffn_gate_inp.weight"), 0U) << "fp32, whatever the others are";
  for (const auto& [theirs, ours] :
       {std::pair("ffn_gate_exps", "w1"), {"ffn_down_exps", "w2"}, {"ffn_up_exps", "w3"}}) {
    std::string all;
    for (int expert = 0; expert < 4; ++expert) {
      all += tensor_of(model, cat("model.layers.1.block_sparse_moe.experts.", expert, ".", ours, ".weight"));
    }
    EXPECT_EQ(file.data(cat("blk.1.", theirs, ".weight"), 2), all);
  }
}

TEST_F(GgufTargetTest, TokenizerIsWritten) {
  std::filesystem::copy(cat(MS_TEST_DATA, "/hf_qwen2_tiny"), folder_ / "model");
  const std::string whole =
      R"({"added_tokens": [{"id": 4, "content": "<end>", "special": true}, {"id": 5, "content": "me"}],
    "pre_tokenizer": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abb": 3}, "merges": [["a", "b"], "ab b"]}})";
  test::write_file(folder_ / "model/tokenizer.json", whole);
  test::write_file(folder_ / "model/tokenizer_config.json",
                   R"({"eos_token": {"content": "<end>"}, "chat_template": "x"})");
  const Gguf file(convert_checkpoint(options(folder_ / "model")).path);
  const auto tokens = file.value_of("tokenizer.ggml.tokens"), types = file.value_of("tokenizer.ggml.token_type");
  ASSERT_EQ(tokens.size(), 67U);
  EXPECT_EQ((std::vector(tokens.begin(), tokens.begin() + 7)),
            (std::vector<std::string>{"a", "b", "ab", "abb", "<end>", "me", "[PAD6]"}));
  EXPECT_EQ((std::vector(types.begin(), types.begin() + 7)),
            (std::vector<std::string>{"1", "1", "1", "1", "3", "4", "5"}));
  EXPECT_EQ(file.value_of("tokenizer.ggml.merges"), (std::vector<std::string>{"a b", "ab b"}));
  EXPECT_EQ(file.value_of("tokenizer.ggml.pre")[0], "gpt-2");
  EXPECT_EQ(file.value_of("tokenizer.ggml.eos_token_id")[0], "4");
  EXPECT_EQ(file.value_of("tokenizer.chat_template")[0], "x");
  EXPECT_FALSE(file.has("tokenizer.ggml.scores"));

  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    test::write_file(folder_ / "model/tokenizer.json", text.replace(text.find(from), from.size(), to));
    ConvertOptions asked = options(folder_ / "model");
    asked.save_dir = folder_ / cat("of ", to.size(), from[1]);
    return asked;
  };
  const Gguf pieces(
      convert_checkpoint(changed(R"("type": "BPE")", R"("type": "BPE", "byte_fallback": true, "unk_token": "b")"))
          .path);
  EXPECT_EQ(pieces.value_of("tokenizer.ggml.model")[0], "llama");
  EXPECT_EQ(std::stof(pieces.value_of("tokenizer.ggml.scores")[3]), -1.0f);
  EXPECT_EQ(pieces.value_of("tokenizer.ggml.token_type")[1], "2");
  const std::tuple<std::string, std::string, ErrorCode, std::string> refused[] = {
      {R"("id": 4)", R"("id": 67)", ErrorCode::kCorruptData, "has the id \"67\", but the model has 67 tokens"},
      {R"("id": 4)", R"("id": 0)", ErrorCode::kCorruptData, "have the same id"},
      {R"("ab b")", R"("abb")", ErrorCode::kCorruptData, "a merge that is not a pair"},
      {R"("ab b")", R"("b b")", ErrorCode::kCorruptData, "makes no token"},
      {R"("BPE")", R"("Unigram")", ErrorCode::kUnsupported, "not a BPE tokenizer"}};
  for (const auto& [from, to, code, part] : refused) {
    const ConvertOptions asked = changed(from, to);
    const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(asked); });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(part));
  }
}

}  // namespace
}  // namespace ms::convert
