// Faults planted in the output of a conversion, in every format: the proof finds each, and names its place and kind.
#include "ckpt/prove.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ckpt/native_sink.h"
#include "ckpt/reader.h"
#include "convert/convert.h"
#include "convert/gguf_source.h"
#include "convert/huggingface_config.h"
#include "convert/safetensors.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/ckpt/whole_source.h"
#include "tests/support/files_of.h"
#include "tests/support/temporary_folder.h"

namespace ms::ckpt {
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault_text(fault); }
}  // namespace ms::ckpt

namespace ms::convert {
namespace {

using ckpt::Fault, ckpt::FaultKind, ckpt::ProofReport;
using ckpt::test::WholeTensor, ckpt::test::WholeTensors;
using core::TensorRole;
using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
namespace fs = std::filesystem;

// A small Qwen3 with experts, or without and with tied embeddings; as many key heads as query heads.
nlohmann::json model_config(bool experts, bool tied) {
  nlohmann::json config = {{"architectures", {experts ? "Qwen3MoeForCausalLM" : "Qwen3ForCausalLM"}},
                           {"model_type", experts ? "qwen3_moe" : "qwen3"},
                           {"attention_bias", false},
                           {"head_dim", 8},
                           {"hidden_act", "silu"},
                           {"hidden_size", 32},
                           {"intermediate_size", 48},
                           {"max_position_embeddings", 64},
                           {"num_attention_heads", 4},
                           {"num_hidden_layers", 4},
                           {"num_key_value_heads", 4},
                           {"rms_norm_eps", 1e-6},
                           {"rope_theta", 10000.0},
                           {"tie_word_embeddings", tied},
                           {"torch_dtype", "float32"},
                           {"use_sliding_window", false},
                           {"sliding_window", nullptr},
                           {"vocab_size", 67}};
  if (experts) {
    config.update({{"decoder_sparse_step", 1},
                   {"mlp_only_layers", nlohmann::json::array()},
                   {"moe_intermediate_size", 16},
                   {"norm_topk_prob", true},
                   {"num_experts", 4},
                   {"num_experts_per_tok", 2},
                   {"output_router_logits", false},
                   {"router_aux_loss_coef", 0.001}});
  }
  return config;
}

struct TargetCase {
  const char* name;
  Format format;
  int tp, pp;
  bool optimizer;
};

class ProveWritten : public ::testing::TestWithParam<TargetCase> {
 protected:
  ProveWritten() : ProveWritten(model_config(true, false)) {}
  explicit ProveWritten(const nlohmann::json& config) : hf_(config), config_(parse_hf_config(config, "test")) {
    core::write_text_atomically(folder_ / "config.json", config.dump());
    state_ = ckpt::test::trained_state(config_.model, false, true);
    tampered_ = state_;
    write(state_, "source");
  }

  void write(const WholeTensors& tensors, const std::string& name) {
    ckpt::CheckpointInfo info;
    info.iteration = 5;
    info.common = {{"step", 5}, {"consumed_train_samples", 40}};
    info.model_extra = {{"family", config_.family->model_type}, {"hf_config", hf_}};
    auto source = ckpt::test::cut(tensors, config_.model, {}, info);
    info = source.info();
    ckpt::NativeSinkOptions options;
    options.root = folder_ / name;
    for (size_t i = 0; i < source.shards().size(); ++i) options.rank_of_target.push_back(0);
    options.num_ranks = 1;
    const auto sink = ckpt::make_native_sink(std::move(options));
    ckpt::execute(source, *sink, info, source.shards(), {});
  }

  std::string convert(const std::string& from, const std::string& to, const TargetCase& target,
                      std::optional<core::DType> dtype = std::nullopt) {
    ConvertOptions options;
    options.load_dir = folder_ / from;
    options.save_dir = folder_ / to;
    options.save_model_type = target.format;
    options.target_tensor_parallel_size = target.tp;
    options.target_pipeline_parallel_size = target.pp;
    options.use_distributed_optimizer = target.optimizer && target.format == Format::kMegatronDist;
    options.drop_optimizer = !target.optimizer;
    if (target.optimizer && (target.format == Format::kMegatron || target.format == Format::kMegatronDist)) {
      options.optimizer.lr = 1e-3;  // the source lacks them
      options.optimizer.adam_beta1 = 0.9;
      options.optimizer.adam_beta2 = 0.999;
      options.optimizer.adam_eps = 1e-8;
    }
    if (target.format == Format::kHuggingFace) options.max_shard_size_bytes = 40'000;
    options.dtype = dtype;
    if (target.format == Format::kNative) {  // reshard makes native from native
      options.load_dir = convert(from, to + ".dist", {"dist", Format::kMegatronDist, 1, 1, true});
    }
    return convert_checkpoint(options).path;
  }

  ProofReport proof(const std::string& target) {
    const auto source = ckpt::open_native(folder_ / "source");
    if (is_gguf(target)) return prove_gguf(*source, target, nullptr, {});
    try {
      const auto written = open_source(target);
      return ckpt::prove(*source, *written);
    } catch (const core::Error& error) {
      return ckpt::refused_target(error);
    }
  }

  // Writes the modified state in the target's format and expects exactly one fault, or several of one kind.
  ProofReport proof_of_tampered(const TargetCase& target, std::optional<core::DType> dtype = std::nullopt) {
    fs::remove_all(folder_ / "tampered");
    fs::remove_all(folder_ / "target");
    fs::remove_all(folder_ / "target.dist");
    write(tampered_, "tampered");
    return proof(convert("tampered", "target", target, dtype));
  }
  void expect(const TargetCase& target, const std::string& tensor, FaultKind kind, const std::string& text,
              size_t faults = 1, std::optional<core::DType> dtype = std::nullopt) {
    const ProofReport report = proof_of_tampered(target, dtype);
    EXPECT_THAT(report.faults, SizeIs(faults));
    EXPECT_THAT(report.faults,
                Contains(AllOf(Field(&Fault::tensor, tensor), Field(&Fault::kind, kind),
                               Field(&Fault::text, HasSubstr(text)), Field(&Fault::place, testing::Ne("")))));
    tampered_ = state_;
  }

  static std::string key(int64_t layer, const std::string& name) {
    return core::cat("decoder.layers.", layer, ".", name);
  }
  static std::string expert(int64_t layer, int64_t number, const std::string& name) {
    return key(layer, core::cat("mlp.experts.local_experts.", number, ".", name, ".weight"));
  }
  WholeTensor& tensor(const std::string& name, TensorRole role = TensorRole::kParam) {
    return tampered_.at({name, role});
  }

  test::TemporaryFolder folder_;
  nlohmann::json hf_;
  HfConfig config_;
  WholeTensors state_, tampered_;
};

const std::string kProj = "self_attention.linear_proj.weight", kQkv = "self_attention.linear_qkv.weight";

TEST_P(ProveWritten, CorrectResultHasNoFaults) {
  const ProofReport report = proof(convert("source", "target", GetParam()));
  EXPECT_THAT(report.faults, IsEmpty());
  EXPECT_THAT(report.notes, IsEmpty());
  EXPECT_EQ(report.dropped.empty(), GetParam().optimizer);
  EXPECT_GE(report.tensors.size(), state_.size() / 3);
}

TEST_P(ProveWritten, UninitialisedExpertsAreFound) {
  WholeTensor& fc2 = tensor(expert(2, 1, "linear_fc2"));
  std::fill(fc2.bytes.begin(), fc2.bytes.end(), std::byte{});
  expect(GetParam(), expert(2, 1, "linear_fc2"), FaultKind::kUninitialised, "all zero");
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.6f);
  std::vector<float> values(tensor(expert(2, 1, "linear_fc1")).bytes.size() / 4);
  for (float& x : values) x = normal(random);
  tensor(expert(2, 1, "linear_fc1")).bytes = ckpt::test::as_bytes(values);
  expect(GetParam(), expert(2, 1, "linear_fc1"), FaultKind::kUninitialised, "scale");
}

TEST_P(ProveWritten, TransposedMatrixIsFound) {
  WholeTensor& proj = tensor(key(1, kProj));
  const std::vector<std::byte> before = proj.bytes;
  for (int64_t i = 0; i < 32 * 32; ++i)
    std::memcpy(proj.bytes.data() + 4 * (i % 32 * 32 + i / 32), before.data() + 4 * i, 4);
  expect(GetParam(), key(1, kProj), FaultKind::kTransposed, "transposed");
}

TEST_P(ProveWritten, SwappedExpertsAreFound) {
  for (const char* name : {"linear_fc1", "linear_fc2"})
    std::swap(tensor(expert(2, 0, name)), tensor(expert(2, 3, name)));
  expect(GetParam(), expert(2, 3, "linear_fc1"), FaultKind::kSwapped, expert(2, 0, "linear_fc1"), 4);
}

TEST_P(ProveWritten, StaleMomentsAreFound) {
  if (!GetParam().optimizer) GTEST_SKIP() << "no optimizer state in this format";
  WholeTensor& moment = tensor(expert(1, 2, "linear_fc1"), TensorRole::kExpAvg);
  std::vector<float> values(moment.bytes.size() / 4);
  std::memcpy(values.data(), moment.bytes.data(), moment.bytes.size());
  for (float& x : values) x = 0.9f * x + 2e-5f;
  moment.bytes = ckpt::test::as_bytes(values);
  expect(GetParam(), expert(1, 2, "linear_fc1"), FaultKind::kStale, "another step");
}

TEST_P(ProveWritten, ShardShiftedByARowIsFound) {
  WholeTensor& embedding = tensor("embedding.word_embeddings.weight");
  std::memmove(embedding.row(34), embedding.row(35), static_cast<size_t>(32 * embedding.row_bytes()));
  expect(GetParam(), "embedding.word_embeddings.weight", FaultKind::kShifted,
         "rows 34 to 65 hold values that belong 1 row");
}

TEST_P(ProveWritten, SwappedGateAndUpAreFound) {
  WholeTensor& fc1 = tensor(expert(3, 1, "linear_fc1"));
  std::rotate(fc1.bytes.begin(), fc1.bytes.begin() + static_cast<std::ptrdiff_t>(fc1.bytes.size() / 2),
              fc1.bytes.end());
  expect(GetParam(), expert(3, 1, "linear_fc1"), FaultKind::kSwapped, "gate and up");
}

TEST_P(ProveWritten, SwappedQueriesAndKeysAreFound) {
  WholeTensor& qkv = tensor(key(0, kQkv));
  for (int64_t head = 0; head < 4; ++head)
    std::swap_ranges(qkv.row(24 * head), qkv.row(24 * head + 8), qkv.row(24 * head + 8));
  expect(GetParam(), key(0, kQkv), FaultKind::kSwapped, "q and k");
}

TEST_P(ProveWritten, TruncatedBf16IsFound) {
  const TargetCase weights = {GetParam().name, GetParam().format, GetParam().tp, GetParam().pp, false};
  WholeTensor& proj = tensor(key(1, kProj));
  for (size_t i = 0; i < proj.bytes.size(); i += 4)
    std::fill_n(proj.bytes.begin() + static_cast<std::ptrdiff_t>(i), 2, std::byte{});
  expect(weights, key(1, kProj), FaultKind::kTruncated, "instead of rounded", 1, core::DType::kBf16);
  EXPECT_THAT(proof_of_tampered(weights, core::DType::kBf16).faults, IsEmpty());  // rounded to nearest even
}

TEST_P(ProveWritten, DuplicatedLayerIsFound) {
  size_t count = 0;
  for (auto& [name, value] : tampered_) {
    if (name.first.rfind(key(2, ""), 0) != 0) continue;
    if (name.second != TensorRole::kParam && !GetParam().optimizer) continue;
    value = state_.at({key(1, name.first.substr(key(2, "").size())), name.second});
    ++count;
  }
  expect(GetParam(), key(2, kQkv), FaultKind::kDuplicated, key(1, kQkv), count);
  EXPECT_GT(count, 10u);
}

INSTANTIATE_TEST_SUITE_P(Formats, ProveWritten,
                         testing::Values(TargetCase{"hf", Format::kHuggingFace, 1, 1, false},
                                         TargetCase{"mg", Format::kMegatron, 2, 2, true},
                                         TargetCase{"dist", Format::kMegatronDist, 2, 1, true},
                                         TargetCase{"dcp", Format::kDcp, 1, 1, true},
                                         TargetCase{"gguf", Format::kGguf, 1, 1, false},
                                         TargetCase{"ms", Format::kNative, 2, 2, true}),
                         [](const auto& param) { return std::string(param.param.name); });

// Faults that only editing the files can cause.
class ProveFolder : public ProveWritten {
 protected:
  explicit ProveFolder(bool tied = false) : ProveWritten(model_config(!tied, tied)) {
    path_ = convert("source", "target", {"hf", Format::kHuggingFace, 1, 1, false});
  }
  // Rewrites a safetensors file with an edited header; data: bytes that are appended.
  static void edit(const fs::path& file, const std::function<void(nlohmann::json& header, std::string& data)>& change) {
    const std::string bytes = test::read_file(file.string());
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), 8);
    nlohmann::json header = nlohmann::json::parse(bytes.substr(8, size));
    std::string data = bytes.substr(8 + size);
    change(header, data);
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    size = text.size();
    std::ofstream(file, std::ios::binary) << std::string(reinterpret_cast<const char*>(&size), 8) << text << data;
  }
  nlohmann::json index() const {
    return nlohmann::json::parse(test::read_file(path_ + "/model.safetensors.index.json"));
  }
  std::string path_;
};

TEST_F(ProveFolder, MissingTensorIsNamed) {
  const std::string name = "model.layers.2.mlp.experts.1.down_proj.weight";
  nlohmann::json map = index();
  map["weight_map"].erase(name);
  core::write_text_atomically(path_ + "/model.safetensors.index.json", map.dump());
  const ProofReport report = proof(path_);
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].kind, FaultKind::kRefused);
  EXPECT_THAT(report.faults[0].text, HasSubstr(name + " is missing"));
}

TEST_F(ProveFolder, DuplicateTensorIsNamed) {
  const std::string name = "model.layers.2.mlp.experts.1.down_proj.weight";
  const nlohmann::json map = index();
  const std::string holder = map["weight_map"][name];
  for (const auto& [other, file] : map["weight_map"].items()) {
    if (file == holder) continue;
    edit(fs::path(path_) / file.get<std::string>(), [&](nlohmann::json& header, std::string& data) {
      const size_t begin = data.size();
      data.append(32 * 16 * 4, 'x');
      header[name] = {{"dtype", "F32"}, {"shape", {32, 16}}, {"data_offsets", {begin, data.size()}}};
    });
    break;
  }
  const ProofReport report = proof(path_);
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].kind, FaultKind::kTwice);
  EXPECT_EQ(report.faults[0].tensor, name);
  EXPECT_THAT(report.faults[0].place, HasSubstr(".safetensors"));
}

TEST_F(ProveFolder, KeyOrderAndShardingAreNoFaults) {
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (entry.path().extension() != ".safetensors") continue;
    edit(entry.path(), [](nlohmann::json& header, std::string& data) {  // the tensors in reverse order
      std::vector<std::string> names;
      for (const auto& [name, value] : header.items()) {
        if (name != "__metadata__") names.push_back(name);
      }
      std::string turned;
      for (auto name = names.rbegin(); name != names.rend(); ++name) {
        auto& place = header[*name]["data_offsets"];
        const auto begin = place[0].get<size_t>(), end = place[1].get<size_t>();
        place = {turned.size(), turned.size() + end - begin};
        turned += data.substr(begin, end - begin);
      }
      data = turned;
    });
  }
  EXPECT_THAT(proof(path_).faults, IsEmpty());
}

class ProveTied : public ProveFolder {
 protected:
  ProveTied() : ProveFolder(true) {}
};

TEST_F(ProveTied, TiedHeadFromTheWrongSideIsNamed) {
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (entry.path().filename() != index()["weight_map"]["model.norm.weight"].get<std::string>()) continue;
    edit(entry.path(), [&](nlohmann::json& header, std::string& data) {
      const size_t begin = data.size();
      const WholeTensor other = state_.at({"embedding.word_embeddings.weight", TensorRole::kExpAvg});
      data.append(reinterpret_cast<const char*>(other.bytes.data()), other.bytes.size());
      header["lm_head.weight"] = {{"dtype", "F32"}, {"shape", {67, 32}}, {"data_offsets", {begin, data.size()}}};
    });
    nlohmann::json map = index();
    map["weight_map"]["lm_head.weight"] = entry.path().filename().string();
    core::write_text_atomically(path_ + "/model.safetensors.index.json", map.dump());
    break;
  }
  const ProofReport report = proof(path_);
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].kind, FaultKind::kRefused);
  EXPECT_THAT(report.faults[0].text, AllOf(HasSubstr("lm_head.weight differs from"), HasSubstr("tie_word_embeddings")));
}

}  // namespace
}  // namespace ms::convert
