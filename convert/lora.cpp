#include "convert/lora.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "ckpt/execute.h"
#include "convert/detail/dense_box.h"
#include "convert/detail/printable.h"
#include "convert/family.h"
#include "convert/huggingface_config.h"
#include "convert/name_map.h"
#include "convert/tensor_file.h"
#include "convert/torch/state_dict.h"
#include "core/error.h"
#include "core/io/file.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;
using core::TensorRole;
using detail::printable;
using nlohmann::json;

constexpr std::string_view kPrefix = "base_model.model.";

// Keys of adapter_config.json that, if set, make the adapter more than B A, or another model.
constexpr const char* kOtherAdapters[] = {"use_dora",          "use_qalora",
                                          "use_bdlora",        "lora_bias",
                                          "layer_replication", "alora_invocation_tokens",
                                          "arrow_config",      "kasa_config",
                                          "monteclora_config", "trainable_token_indices"};
// Values of init_lora_weights that leave the weights unchanged. For the others, PEFT subtracts the initial value from
// the weights, also when it loads an adapter (peft/tuners/lora/layer.py).
constexpr const char* kPlainInits[] = {"gaussian", "eva", "orthogonal", "mica"};

// A matrix of the adapter, read as fp32.
struct Matrix {
  size_t index = 0;  // in the file
  DType dtype = DType::kFp32;
  int64_t rows = 0, columns = 0;
};

// The change to a weight [out, in]: it is replaced, or something is added to it, or both, as for an embedding that PEFT
// saves together with its adapter.
struct Change {
  std::optional<Matrix> a, b;  // [r, in] and [out, r]; for an embedding [r, in = vocabulary] and [out = hidden, r]
  bool of_embedding = false;   // the weight is [vocabulary, hidden]: add (B A) transposed
  std::optional<Matrix> instead;
  double scale = 0;
};

// A box of a canonical tensor whose rows are rows of one of the family's weights.
struct ChangedPiece {
  core::Dims offset, extent;
  int64_t row = 0;
  size_t change = 0;
};

class Adapter {
 public:
  Adapter(const std::string& folder) : path_(folder) {
    core::confine_reads(folder);
    config_ = read_json((fs::path(folder) / "adapter_config.json").string(), 16 << 20);
    const fs::path safetensors = fs::path(folder) / "adapter_model.safetensors";
    const fs::path bin = fs::path(folder) / "adapter_model.bin";
    file_ = fs::exists(safetensors) || !fs::exists(bin) ? open_safetensors(safetensors.string())
                                                        : open_state_dict(bin.string());
    check_config();
    for (size_t i = 0; i < file_->size(); ++i) add((*file_)[i], i);
    for (auto& [weight, change] : changes_) {
      if (!change.a && !change.b) continue;
      if (!change.a || !change.b || change.a->rows != change.b->columns || change.a->rows == 0) {
        throw Error(ErrorCode::kCorruptData, cat(file_->path(), ": ", printable(weight),
                                                 " does not have both A and B, of the same rank above 0"));
      }
      change.scale = scale_of(weight, change.a->rows);
    }
  }

  std::map<std::string, Change>& changes() { return changes_; }  // by name of the weight
  const std::string& path() const { return file_->path(); }

  // Reads rows [row, row + rows) and columns [column, column + columns), as fp32.
  std::vector<float> read(const Matrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    const int64_t item = core::size_of(matrix.dtype);
    const uint64_t begin = (*file_)[matrix.index].begin;
    std::vector<std::byte> bytes(static_cast<size_t>(rows * columns * item));
    detail::read_dense_box(
        {matrix.rows, matrix.columns}, item, {row, column}, {rows, columns}, bytes.data(),
        [&](int64_t at, std::span<std::byte> out) { file_->read(begin + static_cast<uint64_t>(at), out); });
    std::vector<float> values(static_cast<size_t>(rows * columns));
    ckpt::convert_elements(bytes.data(), matrix.dtype, reinterpret_cast<std::byte*>(values.data()), DType::kFp32,
                           rows * columns);
    return values;
  }

 private:
  [[noreturn]] void refuse(const auto&... parts) const {
    throw Error(ErrorCode::kUnsupported, cat(path_, "/adapter_config.json: ", parts..., " is not supported"));
  }

  void check_config() const {
    if (!config_.is_object()) throw Error(ErrorCode::kCorruptData, cat(path_, "/adapter_config.json: not an object"));
    const json type = config_.value("peft_type", json());
    if (type != "LORA") refuse("peft_type ", printable(type.is_string() ? type.get<std::string>() : type.dump()));
    for (const char* key : kOtherAdapters) {
      const json value = config_.value(key, json());
      if (!value.is_null() && value != false && !(value.is_structured() && value.empty())) refuse(key);
    }
    const json init = config_.value("init_lora_weights", json(true));
    if (init.is_string() && std::none_of(std::begin(kPlainInits), std::end(kPlainInits),
                                         [&](const char* plain) { return init == plain; })) {
      refuse("init_lora_weights ", printable(init.get<std::string>()),
             ", which changes the weights themselves (PEFT's path_initial_model_for_weight_conversion saves an "
             "adapter without this change),");
    }
    const json bias = config_.value("bias", json("none"));
    if (!bias.is_null() && bias != "none") refuse("bias other than \"none\"");
    if (!config_.contains("lora_alpha") || !config_["lora_alpha"].is_number()) {
      throw Error(ErrorCode::kCorruptData, cat(path_, "/adapter_config.json: no number lora_alpha"));
    }
  }

  // alpha_pattern: modules whose name ends in a key have their own alpha.
  double scale_of(const std::string& weight, int64_t rank) const {
    const std::string module = weight.substr(0, weight.rfind('.'));
    std::optional<double> own;
    json patterns = config_.value("alpha_pattern", json());
    if (!patterns.is_object()) patterns = json::object();
    for (const auto& [key, value] : patterns.items()) {
      if (key.find_first_of("\\^$*+?()[]{}|") != std::string::npos) refuse("alpha_pattern with a regular expression");
      if (!value.is_number()) refuse("alpha_pattern without a number");
      if (module != key && !module.ends_with("." + key)) continue;
      if (own && *own != value)
        refuse("alpha_pattern with two numbers for ", printable(module));  // depends on PEFT's order
      own = value.get<double>();
    }
    const double alpha = own ? *own : config_["lora_alpha"].get<double>();
    const auto r = static_cast<double>(rank);
    return config_.value("use_rslora", json(false)) == true ? alpha / std::sqrt(r) : alpha / r;
  }

  void add(const TensorFile::Tensor& tensor, size_t index) {
    std::string name(tensor.name);
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
    const auto dtype = to_core_dtype(tensor.dtype);
    if (!dtype || (*dtype != DType::kFp32 && *dtype != DType::kBf16 && *dtype != DType::kFp16)) {
      throw Error(ErrorCode::kUnsupported, cat(file_->path(), ": ", printable(name), " is ",
                                               safetensors_dtype_name(tensor.dtype), "; expected F32, BF16 or F16"));
    }
    if (tensor.shape.empty() || tensor.shape.size() > 2) {
      throw Error(ErrorCode::kUnsupported,
                  cat(file_->path(), ": ", printable(name), " has ", tensor.shape.size(), " axes"));
    }
    const Matrix matrix{index, *dtype, static_cast<int64_t>(tensor.shape[0]),
                        tensor.shape.size() == 2 ? static_cast<int64_t>(tensor.shape[1]) : 1};
    constexpr std::pair<const char*, bool> kEndings[] = {{".lora_A.weight", false},
                                                         {".lora_A.default.weight", false},
                                                         {".lora_embedding_A", true},
                                                         {".lora_embedding_A.default", true}};
    for (const auto& [ending, embedding] : kEndings) {
      for (const bool is_b : {false, true}) {
        std::string wanted = ending;
        if (is_b) wanted.replace(wanted.find("_A"), 2, "_B");
        if (!name.ends_with(wanted)) continue;
        Change& change = changes_[cat(name.substr(0, name.size() - wanted.size()), ".weight")];
        (is_b ? change.b : change.a) = matrix;
        change.of_embedding = embedding;
        return;
      }
    }
    if (const size_t at = name.find(".base_layer."); at != std::string::npos)
      name.erase(at, std::string(".base_layer").size());
    const std::string saved = ".modules_to_save.";  // followed by .default.
    if (const size_t at = name.find(saved); at != std::string::npos) {
      const size_t next = name.find('.', at + saved.size());
      name.erase(at, (next == std::string::npos ? name.size() - 1 : next) - at);
    }
    changes_[name].instead = matrix;
  }

  std::string path_;
  json config_;
  std::unique_ptr<TensorFile> file_;
  std::map<std::string, Change> changes_;
};

class LoraSource final : public ckpt::Source {
 public:
  LoraSource(std::unique_ptr<ckpt::Source> base, const std::string& folder, bool as_fp32,
             std::vector<std::string>& decisions)
      : base_(std::move(base)), adapter_(folder) {
    locate();
    for (const core::ShardedTensor& shard : base_->shards()) {
      core::ShardedTensor own = shard;
      const bool changed = shard.role == TensorRole::kParam && pieces_.contains(shard.key);
      if (changed && as_fp32) own.dtype = DType::kFp32;
      shards_.push_back(own);
      pieces_of_.push_back(changed ? &pieces_.at(shard.key) : nullptr);
    }
    size_t merged = 0;
    for (const auto& [name, change] : adapter_.changes()) merged += change.a ? 1 : 0;
    decisions.push_back(
        cat(adapter_.path(), ": merged into ", merged, " weights",
            merged == changes_.size() ? std::string() : cat("; ", changes_.size() - merged, " are replaced")));
  }

  const ckpt::CheckpointInfo& info() const override { return base_->info(); }
  const ckpt::ShardTable& shards() const override { return shards_; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override;
  bool expect_stream(int64_t cache_bytes, int threads) override { return base_->expect_stream(cache_bytes, threads); }
  void begin_one_pass() override { base_->begin_one_pass(); }
  void end_one_pass(bool all) override { base_->end_one_pass(all); }
  int64_t scratch_bytes() const override { return base_->scratch_bytes() + (int64_t{16} << 20); }
  std::string describe(int32_t shard) const override { return base_->describe(shard); }

 private:
  void locate();
  void check_shape(const MappedTensor& mapped, const Change& change) const;
  void change_rows(const Change& change, int64_t row, int64_t rows, int64_t column, int64_t columns,
                   std::span<float> values) const;

  std::unique_ptr<ckpt::Source> base_;
  Adapter adapter_;
  std::vector<const Change*> changes_;
  std::map<std::string, std::vector<ChangedPiece>> pieces_;  // by canonical key
  ckpt::ShardTable shards_;
  std::vector<const std::vector<ChangedPiece>*> pieces_of_;  // one per shard; null: unchanged
};

void LoraSource::locate() {
  const ckpt::CheckpointInfo& info = base_->info();
  const json named = info.model_extra.value("family", json());
  const Family& family = named.is_string() ? find_family(named.get<std::string>()) : family_of_model(info.model);
  std::set<std::string_view> used;
  for_each_tensor(family, info.model, [&](const MappedTensor& mapped) {
    const auto found = adapter_.changes().find(mapped.name);
    if (found == adapter_.changes().end() || mapped.is_copy) return;
    used.insert(found->first);
    check_shape(mapped, found->second);
    for (const TensorPiece& piece : mapped.pieces) {
      pieces_[mapped.key].push_back({piece.offset, piece.extent, piece.row, changes_.size()});
    }
    changes_.push_back(&found->second);
  });
  for (const auto& [name, change] : adapter_.changes()) {
    if (used.contains(name)) continue;
    throw Error(ErrorCode::kUnsupported, cat(adapter_.path(), ": changes ", printable(name), ", which a ",
                                             family.model_type, " model with this config does not have"));
  }
}

void LoraSource::check_shape(const MappedTensor& mapped, const Change& change) const {
  const bool vector = mapped.shape.size() == 1;
  int64_t rows = mapped.shape[0], columns = vector ? 1 : mapped.shape[1];
  if (mapped.transposed) std::swap(rows, columns);
  if (change.instead && mapped.transposed && !vector) {
    throw Error(ErrorCode::kUnsupported,
                cat(adapter_.path(), ": replaces ", mapped.name, ", a matrix stored [in, out]"));
  }
  const auto fits = [&](const Matrix& matrix, int64_t r, int64_t c) { return matrix.rows == r && matrix.columns == c; };
  const bool whole = !change.instead || fits(*change.instead, rows, columns);
  const bool pair =
      !change.a || (!vector && (change.of_embedding ? change.a->columns == rows && change.b->rows == columns
                                                    : change.b->rows == rows && change.a->columns == columns));
  const bool same = whole && pair;
  if (!same) {
    throw Error(ErrorCode::kCorruptData, cat(adapter_.path(), ": its matrices for ", mapped.name,
                                             " do not fit that weight's shape ", mapped.shape));
  }
}

// values: [rows, columns] of the weight.
void LoraSource::change_rows(const Change& change, int64_t row, int64_t rows, int64_t column, int64_t columns,
                             std::span<float> values) const {
  if (change.instead) {
    const std::vector<float> other = adapter_.read(*change.instead, row, rows, column, columns);
    std::copy(other.begin(), other.end(), values.begin());
  }
  if (!change.a) return;
  const int64_t rank = change.a->rows;
  // left [rows, rank], right [rank, columns]
  std::vector<float> left, right;
  if (change.of_embedding) {
    const std::vector<float> a = adapter_.read(*change.a, 0, rank, row, rows);
    const std::vector<float> b = adapter_.read(*change.b, column, columns, 0, rank);
    left.resize(a.size());
    right.resize(b.size());
    for (int64_t k = 0; k < rank; ++k) {
      for (int64_t i = 0; i < rows; ++i) left[static_cast<size_t>(i * rank + k)] = a[static_cast<size_t>(k * rows + i)];
      for (int64_t i = 0; i < columns; ++i) {
        right[static_cast<size_t>(k * columns + i)] = b[static_cast<size_t>(i * rank + k)];
      }
    }
  } else {
    left = adapter_.read(*change.b, row, rows, 0, rank);
    right = adapter_.read(*change.a, 0, rank, column, columns);
  }
  std::vector<float> sum(static_cast<size_t>(columns));
  const auto scale = static_cast<float>(change.scale);
  for (int64_t i = 0; i < rows; ++i) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int64_t k = 0; k < rank; ++k) {
      const float factor = left[static_cast<size_t>(i * rank + k)];
      const float* from = right.data() + k * columns;
      for (int64_t j = 0; j < columns; ++j) sum[static_cast<size_t>(j)] += factor * from[j];
    }
    float* to = values.data() + i * columns;
    for (int64_t j = 0; j < columns; ++j) to[j] += scale * sum[static_cast<size_t>(j)];
  }
}

void LoraSource::read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) {
  const auto* pieces = pieces_of_[static_cast<size_t>(shard)];
  if (pieces == nullptr || core::num_elements(extent) == 0) return base_->read(shard, offset, extent, out);
  const DType stored = base_->shards().dtype_of(static_cast<size_t>(shard)),
              wanted = shards_.dtype_of(static_cast<size_t>(shard));
  const core::Dims base = shards_.offsets(static_cast<size_t>(shard));  // offset of the shard in its tensor
  const int64_t columns = extent.size() == 2 ? extent[1] : 1, rows = extent[0];
  // A few rows at a time, so that fp32 values and factors stay small.
  const int64_t at_once = std::clamp<int64_t>((int64_t{1} << 20) / std::max<int64_t>(1, columns), 1, rows);
  std::vector<std::byte> read(static_cast<size_t>(at_once * columns * core::size_of(stored)));
  std::vector<float> values(static_cast<size_t>(at_once * columns));
  for (int64_t done = 0; done < rows; done += at_once) {
    const int64_t count = std::min(at_once, rows - done);
    core::Dims part_offset = offset, part_extent = extent;
    part_offset[0] += done;
    part_extent[0] = count;
    base_->read(shard, part_offset, part_extent, read.data());
    auto* floats = reinterpret_cast<std::byte*>(values.data());
    ckpt::convert_elements(read.data(), stored, floats, DType::kFp32, count * columns);
    const int64_t first_row = base[0] + part_offset[0], first_column = extent.size() == 2 ? base[1] + offset[1] : 0;
    for (const ChangedPiece& piece : *pieces) {  // of whole rows
      const int64_t begin = std::max(first_row, piece.offset[0]);
      const int64_t end = std::min(first_row + count, piece.offset[0] + piece.extent[0]);
      if (begin >= end) continue;
      const auto at = static_cast<size_t>((begin - first_row) * columns);
      change_rows(*changes_[piece.change], piece.row + begin - piece.offset[0], end - begin, first_column, columns,
                  std::span(values).subspan(at, static_cast<size_t>((end - begin) * columns)));
    }
    ckpt::convert_elements(floats, DType::kFp32, out + done * columns * core::size_of(wanted), wanted, count * columns);
  }
}

}  // namespace

std::unique_ptr<ckpt::Source> merge_lora(std::unique_ptr<ckpt::Source> base, const std::string& folder, bool as_fp32,
                                         std::vector<std::string>& decisions) {
  return std::make_unique<LoraSource>(std::move(base), folder, as_fp32, decisions);
}

}  // namespace ms::convert
