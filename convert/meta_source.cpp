#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "convert/detail/printable.h"
#include "convert/huggingface_config.h"
#include "convert/mapped_source.h"
#include "convert/meta.h"
#include "convert/tensor_file.h"
#include "convert/torch/state_dict.h"
#include "core/error.h"
#include "core/io/file.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;
using nlohmann::json;

constexpr int64_t kMaxParamsBytes = 1 << 20;
constexpr uint64_t kScratchBytes = uint64_t{4} << 20;
constexpr int64_t kLlama3Vocabulary = 128256;

// How a tensor is joined from the ranks' parts.
enum class Join { kSame, kRows, kColumns };
struct Rule {
  std::string_view meta, hf;
  Join join;
  bool heads = false;  // rows are ordered by rotary pairs
};
constexpr Rule kOutside[] = {{"tok_embeddings.weight", "model.embed_tokens.weight", Join::kRows},  // or columns
                             {"norm.weight", "model.norm.weight", Join::kSame},
                             {"output.weight", "lm_head.weight", Join::kRows}};
constexpr Rule kInLayers[] = {{"attention.wq.weight", "self_attn.q_proj.weight", Join::kRows, true},
                              {"attention.wk.weight", "self_attn.k_proj.weight", Join::kRows, true},
                              {"attention.wv.weight", "self_attn.v_proj.weight", Join::kRows},
                              {"attention.wo.weight", "self_attn.o_proj.weight", Join::kColumns},
                              {"feed_forward.w1.weight", "mlp.gate_proj.weight", Join::kRows},
                              {"feed_forward.w3.weight", "mlp.up_proj.weight", Join::kRows},
                              {"feed_forward.w2.weight", "mlp.down_proj.weight", Join::kColumns},
                              {"attention_norm.weight", "input_layernorm.weight", Join::kSame},
                              {"ffn_norm.weight", "post_attention_layernorm.weight", Join::kSame}};

std::string rank_name(size_t rank) {
  char name[32];
  std::snprintf(name, sizeof name, "consolidated.%02zu.pth", rank);
  return name;
}

using Files = std::vector<std::shared_ptr<const TensorFile>>;

// The ranks' tensors, joined and under Hugging Face's names.
class MetaTensors final : public TensorFile {
 public:
  MetaTensors(std::string folder, Files ranks) : folder_(std::move(folder)), ranks_(std::move(ranks)) {}

  // Adds the tensor that every rank's file calls `meta`. head_dim: size of the heads whose rows are to be reordered; 0:
  // keep the order.
  void add(const std::string& meta, std::string hf, Join join, uint64_t head_dim) {
    Entry entry{std::move(hf), SafetensorsDType::kF32, {}, join, head_dim, {}, {}, end_, 0};
    for (const auto& rank : ranks_) {
      const auto found = rank->find(meta);
      if (!found) throw Error(ErrorCode::kCorruptData, cat(rank->path(), ": no ", printable(meta), " in it"));
      const Tensor tensor = (*rank)[*found];
      if (entry.begins.empty()) {
        entry.dtype = tensor.dtype;
        entry.part.assign(tensor.shape.begin(), tensor.shape.end());
        entry.shape = entry.part;
      }
      if (tensor.dtype != entry.dtype ||
          !std::equal(tensor.shape.begin(), tensor.shape.end(), entry.part.begin(), entry.part.end())) {
        throw Error(ErrorCode::kCorruptData,
                    cat(rank->path(), ": ", printable(meta), " has another type or shape than in ", ranks_[0]->path()));
      }
      entry.begins.push_back(tensor.begin);
    }
    const size_t axis = join == Join::kColumns ? 1 : 0;
    if (join != Join::kSame && entry.shape.size() != 2) {
      throw Error(ErrorCode::kCorruptData, cat(ranks_[0]->path(), ": ", printable(meta), " is not a matrix"));
    }
    if (join != Join::kSame) entry.shape[axis] *= ranks_.size();
    if (head_dim != 0 && (head_dim % 2 != 0 || entry.part[0] % head_dim != 0)) {
      throw Error(ErrorCode::kCorruptData, cat(ranks_[0]->path(), ": ", printable(meta), " of ", entry.part[0],
                                               " rows does not contain whole heads of ", head_dim));
    }
    entry.bytes = bits_of(entry.dtype) / 8;
    for (const uint64_t length : entry.shape) entry.bytes *= length;  // of elements that files hold
    end_ += entry.bytes;
    by_name_.emplace(entry.name, entries_.size());
    taken_.insert(meta);
    entries_.push_back(std::move(entry));
  }

  bool took(const std::string& meta) const { return taken_.contains(meta); }

  const std::string& path() const override { return folder_; }
  size_t size() const override { return entries_.size(); }
  Tensor operator[](size_t index) const override {
    const Entry& entry = entries_[index];
    return {entry.name, entry.dtype, entry.shape, entry.at, entry.at + entry.bytes};
  }
  std::optional<size_t> find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? std::nullopt : std::optional(found->second);
  }
  void read(uint64_t offset, std::span<std::byte> out) const override;

 private:
  struct Entry {
    std::string name;
    SafetensorsDType dtype;
    std::vector<uint64_t> part;  // shape in a rank's file
    Join join;
    uint64_t head_dim;
    std::vector<uint64_t> shape, begins;  // begins: offsets in the ranks' files
    uint64_t at, bytes;                   // range in the concatenation of all tensors
  };
  void read_rows(const Entry& entry, uint64_t row, uint64_t rows, std::byte* out) const;

  std::string folder_;
  Files ranks_;
  std::vector<Entry> entries_;  // ordered by `at`
  std::map<std::string, size_t, std::less<>> by_name_;
  std::set<std::string> taken_;  // names in the files
  uint64_t end_ = 0;
};

void MetaTensors::read(uint64_t offset, std::span<std::byte> out) const {
  if (out.empty()) return;
  const auto after = std::upper_bound(entries_.begin(), entries_.end(), offset,
                                      [](uint64_t at, const Entry& entry) { return at < entry.at; });
  MS_CHECK(after != entries_.begin(), "byte ", offset, " is in no tensor");
  const Entry& entry = *std::prev(after);
  const uint64_t within = offset - entry.at;
  if (entry.join == Join::kSame) return ranks_[0]->read(entry.begins[0] + within, out);
  const uint64_t row_bytes = entry.shape[1] * bits_of(entry.dtype) / 8;
  uint64_t at = within;
  while (!out.empty()) {
    const uint64_t row = at / row_bytes, skipped = at % row_bytes;
    if (skipped == 0 && out.size() >= row_bytes) {
      const uint64_t rows = std::min(out.size() / row_bytes, std::max<uint64_t>(1, kScratchBytes / row_bytes));
      read_rows(entry, row, rows, out.data());
      out = out.subspan(rows * row_bytes);
      at += rows * row_bytes;
      continue;
    }
    std::vector<std::byte> whole(row_bytes);
    read_rows(entry, row, 1, whole.data());
    const uint64_t count = std::min<uint64_t>(out.size(), row_bytes - skipped);
    std::memcpy(out.data(), whole.data() + skipped, count);
    out = out.subspan(count);
    at += count;
  }
}

void MetaTensors::read_rows(const Entry& entry, uint64_t row, uint64_t rows, std::byte* out) const {
  const uint64_t item = bits_of(entry.dtype) / 8, part_bytes = entry.part[1] * item;
  const uint64_t row_bytes = entry.shape[1] * item;
  if (entry.join == Join::kColumns) {
    std::vector<std::byte> some(rows * part_bytes);
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank]->read(entry.begins[rank] + row * part_bytes, some);
      for (uint64_t r = 0; r < rows; ++r) {
        std::memcpy(out + r * row_bytes + rank * part_bytes, some.data() + r * part_bytes, part_bytes);
      }
    }
    return;
  }
  for (uint64_t r = 0; r < rows;) {
    const uint64_t wanted = row + r;
    uint64_t from = wanted, count = 1;
    if (entry.head_dim == 0) {  // until the end of a rank's part
      count = std::min(rows - r, entry.part[0] - wanted % entry.part[0]);
    } else {
      const uint64_t half = entry.head_dim / 2, head = wanted / entry.head_dim, at = wanted % entry.head_dim;
      from = head * entry.head_dim + at % half * 2 + at / half;
    }
    const size_t rank = from / entry.part[0];
    ranks_[rank]->read(entry.begins[rank] + from % entry.part[0] * part_bytes,
                       {out + r * row_bytes, count * row_bytes});
    r += count;
  }
}

class MetaCheckpoint {
 public:
  MetaCheckpoint(const std::string& folder, const std::string& hf_cfg_dir, std::vector<std::string>& decisions)
      : folder_(folder), params_path_((fs::path(folder) / "params.json").string()), decisions_(decisions) {
    params_ = read_json(params_path_, kMaxParamsBytes);
    if (!params_.is_object()) throw Error(ErrorCode::kCorruptData, cat(params_path_, ": not an object"));
    for (const char* key : {"moe", "vision_chunk_size", "num_experts"}) {
      if (params_.contains(key))
        throw Error(ErrorCode::kUnsupported, cat(params_path_, ": ", key, " is not supported"));
    }
    open_ranks();
    config_ = hf_cfg_dir.empty() ? parse_hf_config(config_of_params(), params_path_) : read_hf_config(hf_cfg_dir);
    if (config_->family->model_type != "llama") {
      throw Error(ErrorCode::kInvalidArgument, cat("--hf-cfg-dir ", hf_cfg_dir, ": a ", config_->family->model_type,
                                                   " model, but Meta's files contain a llama"));
    }
  }

  std::unique_ptr<ckpt::Source> source() && {
    const core::TransformerConfig& model = config_->model;
    auto tensors = std::make_unique<MetaTensors>(folder_, ranks_);
    const auto head_dim = static_cast<uint64_t>(model.kv_channels);
    for (const Rule& rule : kOutside) {
      if (rule.hf == "lm_head.weight" && !model.untie_embeddings_and_output_weights) continue;
      const Join join = rule.hf == "model.embed_tokens.weight" && embedding_by_columns() ? Join::kColumns : rule.join;
      tensors->add(std::string(rule.meta), std::string(rule.hf), join, 0);
    }
    for (int64_t layer = 0; layer < model.num_layers; ++layer) {
      for (const Rule& rule : kInLayers) {
        tensors->add(cat("layers.", layer, ".", rule.meta), cat("model.layers.", layer, ".", rule.hf), rule.join,
                     rule.heads ? head_dim : 0);
      }
    }
    for (size_t i = 0; i < ranks_[0]->size(); ++i) {
      const std::string name((*ranks_[0])[i].name);
      if (name == "rope.freqs" || tensors->took(name)) continue;
      throw Error(ErrorCode::kUnsupported, cat(ranks_[0]->path(), ": ", printable(name),
                                               " is not part of a llama model with ", model.num_layers, " layers"));
    }
    NamedTensors named;
    named.where = folder_;
    for (size_t i = 0; i < tensors->size(); ++i) {
      named.tables[core::TensorRole::kParam].emplace((*tensors)[i].name, NamedTensors::Place{0, i});
    }
    named.files.push_back(std::move(tensors));
    return make_mapped_source(std::move(named), *config_, {});
  }

 private:
  void open_ranks() {
    while (fs::exists(fs::path(folder_) / rank_name(ranks_.size()))) {
      ranks_.push_back(open_state_dict((fs::path(folder_) / rank_name(ranks_.size())).string()));
    }
    size_t there = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      there += name.starts_with("consolidated.") && name.ends_with(".pth") ? 1 : 0;
    }
    if (ranks_.empty() || there != ranks_.size()) {
      throw Error(ErrorCode::kCorruptData, cat((fs::path(folder_) / rank_name(ranks_.size())).string(), " is missing"));
    }
  }

  std::vector<uint64_t> shape_of(const std::string& name) const {
    const auto found = ranks_[0]->find(name);
    if (!found) throw Error(ErrorCode::kCorruptData, cat(ranks_[0]->path(), ": no ", name, " in it"));
    const TensorFile::Tensor tensor = (*ranks_[0])[*found];
    return {tensor.shape.begin(), tensor.shape.end()};
  }
  int64_t number(const char* key) const {
    if (!params_.contains(key) || !params_[key].is_number_integer() || params_[key].get<int64_t>() <= 0) {
      throw Error(ErrorCode::kCorruptData, cat(params_path_, ": no positive number ", key));
    }
    return params_[key].get<int64_t>();
  }
  // Before Llama 3 the embedding is cut by columns. With a single rank both cuts are the same.
  bool embedding_by_columns() const {
    const auto shape = shape_of("tok_embeddings.weight");
    return shape.size() == 2 && static_cast<int64_t>(shape[1]) != number("dim");
  }

  // Returns the config.json that transformers would write.
  json config_of_params() {
    const uint64_t ranks = ranks_.size();
    const auto embedding = shape_of("tok_embeddings.weight"), gate = shape_of("layers.0.feed_forward.w1.weight");
    if (embedding.size() != 2 || gate.size() != 2) {
      throw Error(ErrorCode::kCorruptData, cat(ranks_[0]->path(), ": tok_embeddings or w1 is not a matrix"));
    }
    const auto vocabulary = static_cast<int64_t>(embedding_by_columns() ? embedding[0] : embedding[0] * ranks);
    const int64_t heads = number("n_heads");
    const bool scaled = params_.value("use_scaled_rope", json(false)) == true;
    const int64_t longest = scaled ? 131072 : vocabulary == kLlama3Vocabulary ? 8192 : 4096;
    json config = {{"model_type", "llama"},
                   {"architectures", {"LlamaForCausalLM"}},
                   {"hidden_size", number("dim")},
                   {"intermediate_size", gate[0] * ranks},
                   {"num_hidden_layers", number("n_layers")},
                   {"num_attention_heads", heads},
                   {"num_key_value_heads", params_.contains("n_kv_heads") ? number("n_kv_heads") : heads},
                   {"vocab_size", vocabulary},
                   {"rms_norm_eps", params_.value("norm_eps", json(1e-5))},
                   {"rope_theta", params_.value("rope_theta", json(10000.0))},
                   {"max_position_embeddings", longest},
                   {"hidden_act", "silu"},
                   {"tie_word_embeddings", !ranks_[0]->find("output.weight").has_value()}};
    decisions_.push_back(cat("params.json lacks the sequence length: ", longest,
                             " is assumed; --hf-cfg-dir gives a config.json that has it"));
    if (scaled) {
      config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", params_.value("rope_scaling_factor", json(8.0))},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0},
                                {"original_max_position_embeddings", 8192}};
    }
    return config;
  }

  std::string folder_, params_path_;
  std::vector<std::string>& decisions_;
  json params_;
  Files ranks_;
  std::optional<HfConfig> config_;
};

}  // namespace

std::string meta_sign(const std::string& folder) {
  const std::string first = rank_name(0);
  const bool both = fs::exists(fs::path(folder) / "params.json") && fs::exists(fs::path(folder) / first);
  return both ? cat("params.json and ", first) : "";
}

std::unique_ptr<ckpt::Source> open_meta(const std::string& folder, const std::string& hf_cfg_dir,
                                        std::vector<std::string>& decisions) {
  core::confine_reads(folder);
  return MetaCheckpoint(folder, hf_cfg_dir, decisions).source();
}

}  // namespace ms::convert
