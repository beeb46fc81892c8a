// Meta's files of a Llama, made from a Hugging Face model by the definition of their layout, are read back as that
// model.
#include "convert/meta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "convert/convert.h"
#include "convert/detect.h"
#include "convert/safetensors.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::cat;
using core::ErrorCode;
using testing::Contains;
using testing::HasSubstr;

const std::string kModel = cat(MS_TEST_DATA, "/hf_llama_tiny");  // bf16, 4 heads of 4, 2 of them for keys
constexpr size_t kHead = 4;
constexpr const char* kParams =
    R"({"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "norm_eps": 1e-06, "vocab_size": -1)";

// Of bf16 elements.
struct Matrix {
  std::vector<uint64_t> shape;
  std::string bytes;
  std::string row(size_t r) const { return bytes.substr(r * shape[1] * 2, shape[1] * 2); }
};

// In each head, row 2 j + h is row j of half h.
Matrix interleaved(const Matrix& from) {
  Matrix made{from.shape, ""};
  for (size_t r = 0; r < from.shape[0]; ++r) {
    const size_t head = r / kHead, within = r % kHead;
    made.bytes += from.row(head * kHead + within % 2 * (kHead / 2) + within / 2);
  }
  return made;
}

Matrix part(const Matrix& from, size_t rank, size_t ranks, bool columns) {
  Matrix made{from.shape, ""};
  made.shape[columns ? 1 : 0] /= ranks;
  for (size_t r = 0; r < made.shape[0]; ++r) {
    const std::string row = from.row(columns ? r : rank * made.shape[0] + r);
    made.bytes += columns ? row.substr(rank * made.shape[1] * 2, made.shape[1] * 2) : row;
  }
  return made;
}

class MetaTest : public testing::Test {
 protected:
  Matrix tensor(const std::string& name) {
    const SafetensorsReader reader(kModel + "/model.safetensors");
    const auto found = reader.header()[*reader.header().find(name)];
    Matrix made{{found.shape.begin(), found.shape.end()}, std::string(found.end - found.begin, '\0')};
    reader.read(found.begin, std::as_writable_bytes(std::span(made.bytes)));
    if (files_.size() == 2 && made.shape[0] == 67) {  // one more row, so that two ranks divide it
      made.bytes += made.row(0);
      ++made.shape[0];
    }
    return made;
  }
  void put(const std::string& meta, const Matrix& whole, bool split, bool columns = false) {
    for (size_t rank = 0; rank < files_.size(); ++rank) {
      files_[rank].emplace_back(meta, split ? part(whole, rank, files_.size(), columns) : whole);
    }
  }
  void make(size_t ranks, bool embedding_by_columns) {
    files_.assign(ranks, {});
    put("tok_embeddings.weight", tensor("model.embed_tokens.weight"), true, embedding_by_columns);
    put("norm.weight", tensor("model.norm.weight"), false);
    put("output.weight", tensor("lm_head.weight"), true);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string from = cat("model.layers.", layer, "."), to = cat("layers.", layer, ".");
      put(to + "attention.wq.weight", interleaved(tensor(from + "self_attn.q_proj.weight")), true);
      put(to + "attention.wk.weight", interleaved(tensor(from + "self_attn.k_proj.weight")), true);
      put(to + "attention.wv.weight", tensor(from + "self_attn.v_proj.weight"), true);
      put(to + "attention.wo.weight", tensor(from + "self_attn.o_proj.weight"), true, true);
      put(to + "feed_forward.w1.weight", tensor(from + "mlp.gate_proj.weight"), true);
      put(to + "feed_forward.w2.weight", tensor(from + "mlp.down_proj.weight"), true, true);
      put(to + "feed_forward.w3.weight", tensor(from + "mlp.up_proj.weight"), true);
      put(to + "attention_norm.weight", tensor(from + "input_layernorm.weight"), false);
      put(to + "ffn_norm.weight", tensor(from + "post_attention_layernorm.weight"), false);
    }
    put("rope.freqs", {{2}, std::string(4, '\0')}, false);
  }
  void save() {
    test::write_file(folder_ / "meta/params.json", params_ + "}");
    for (size_t rank = 0; rank < files_.size(); ++rank) {
      std::vector<std::string> storages;
      for (const auto& [name, values] : files_[rank]) storages.push_back(values.bytes);
      const std::string pickle = make_pickle([&](PickleWriter& p) {
        p.dict([&] {
          for (size_t i = 0; i < files_[rank].size(); ++i) {
            const auto& [name, values] = files_[rank][i];
            const auto elements = static_cast<int64_t>(values.bytes.size() / 2);
            p.text(name);
            write_torch_tensor(p,
                               {SafetensorsDType::kBF16, i, elements, 0, {values.shape.begin(), values.shape.end()}});
          }
        });
      });
      test::write_file(folder_ / cat("meta/consolidated.0", rank, ".pth"), make_torch_archive(pickle, storages));
    }
  }
  ConvertReport convert() {
    ConvertOptions options;
    options.load_dir = folder_ / "meta";
    options.save_dir = folder_ / cat("hf", ++runs_);
    options.save_model_type = Format::kHuggingFace;
    return convert_checkpoint(options);
  }
  void expect_refused(ErrorCode code, const std::string& part) {
    const test::Thrown thrown = test::thrown_by([&] { convert(); });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(part));
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
  }
  MetaTest() { std::filesystem::create_directories(folder_ / "meta"); }
  const test::TemporaryFolder folder_;
  std::string params_ = kParams;
  std::vector<std::vector<std::pair<std::string, Matrix>>> files_;  // per rank
  int runs_ = 0;
};

TEST_F(MetaTest, OneRankIsReadAsTheModel) {
  make(1, false);
  save();
  EXPECT_EQ(detect_format(folder_ / "meta").format, Format::kMeta);
  EXPECT_EQ(detect_format(folder_ / "meta").rule, "params.json and consolidated.00.pth");
  const ConvertReport report = convert();
  EXPECT_THAT(report.decisions, Contains(HasSubstr("params.json lacks the sequence length: 4096 is assumed")));
  EXPECT_EQ(test::read_file(report.path + "/model.safetensors"), test::read_file(kModel + "/model.safetensors"));
}

// The embedding cut by columns, as before Llama 3, or by rows.
TEST_F(MetaTest, TwoRanksAreReadAsTheModel) {
  for (const bool by_columns : {true, false}) {
    make(2, by_columns);
    save();
    const ConvertReport report = convert();
    const SafetensorsReader made(report.path + "/model.safetensors");
    EXPECT_EQ(made.header().size(), 21U);
    for (size_t i = 0; i < made.header().size(); ++i) {
      const auto found = made.header()[i];
      std::string bytes(found.end - found.begin, '\0');
      made.read(found.begin, std::as_writable_bytes(std::span(bytes)));
      EXPECT_EQ(bytes, tensor(std::string(found.name)).bytes) << found.name;
    }
  }
}

TEST_F(MetaTest, BadFilesAreRefused) {
  make(2, true);
  save();
  std::filesystem::rename(folder_ / "meta/consolidated.01.pth", folder_ / "meta/consolidated.02.pth");
  expect_refused(ErrorCode::kCorruptData, "consolidated.01.pth is missing");
  std::filesystem::rename(folder_ / "meta/consolidated.02.pth", folder_ / "meta/consolidated.01.pth");
  for (const auto& [from, to, code, part] :
       {std::tuple("\"n_layers\": 2", "\"n_layers\": 1", ErrorCode::kUnsupported,
                   "is not part of a llama model with 1 layers"),
        std::tuple("\"n_layers\": 2", "\"n_layers\": 3", ErrorCode::kCorruptData,
                   "no \"layers.2.attention.wq.weight\" in it"),
        std::tuple("\"n_heads\": 4", "\"n_heads\": 0", ErrorCode::kCorruptData, "no positive number n_heads"),
        std::tuple("\"vocab_size\"", "\"moe\": {}, \"vocab_size\"", ErrorCode::kUnsupported, "moe is not supported")}) {
    params_ = kParams;
    params_.replace(params_.find(from), std::string(from).size(), to);
    test::write_file(folder_ / "meta/params.json", params_ + "}");
    expect_refused(code, part);
  }
  params_ = kParams;
  files_[1][0].second = part(files_[1][0].second, 0, 2, true);
  save();
  expect_refused(ErrorCode::kCorruptData, "has another type or shape than in");
}

}  // namespace
}  // namespace ms::convert
