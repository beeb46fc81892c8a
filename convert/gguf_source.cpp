#include "convert/gguf_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ckpt/execute.h"
#include "convert/detail/dense_box.h"
#include "convert/detail/printable.h"
#include "convert/gguf/architecture.h"
#include "convert/gguf/reader.h"
#include "convert/huggingface_config.h"
#include "convert/name_map.h"
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

constexpr const char* kFile = "model.gguf";
constexpr std::string_view kRopeFactors = "rope_freqs.weight", kOutput = "output.weight",
                           kEmbedding = "token_embd.weight";

std::string file_of(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? (fs::path(path) / kFile).string() : path;
}

DType dtype_of(GgufType type) {
  return type == GgufType::kBF16 ? DType::kBf16 : type == GgufType::kF16 ? DType::kFp16 : DType::kFp32;
}

// The family whose names the tensors had.
std::shared_ptr<const Family> family_of(const ckpt::CheckpointInfo& info, const Family* named) {
  const json config = info.model_extra.value("hf_config", json());
  if (named != nullptr || config.is_object()) return family_of_result(config, info.model_extra, named);
  return {std::shared_ptr<const Family>(), &family_of_model(info.model)};
}

// Position of a shard's elements in the file.
struct Place {
  const GgufReader::Tensor* tensor = nullptr;
  int64_t first = 0;  // element of the tensor
  int64_t columns = 1, head_rows = 0;
};

class GgufSource final : public ckpt::Source {
 public:
  GgufSource(const std::string& path, const ckpt::Source& original, const Family* named) : file_(file_of(path)) {
    info_.model = original.info().model;
    const std::shared_ptr<const Family> held = family_of(original.info(), named);
    const std::string_view architecture = gguf_architecture(*held, info_.model);
    if (file_.architecture() != architecture) {
      throw Error(ErrorCode::kCorruptData, cat(file_.path(), ": a ", printable(file_.architecture()),
                                               " model, but its source is ", architecture));
    }
    for_each_tensor(*held, info_.model, [&](const MappedTensor& mapped) {
      if (!mapped.is_copy) add(*held, mapped);
    });
    for (const std::string& key : quantized_) {
      if (!plain_.contains(key)) continue;
      throw Error(ErrorCode::kUnsupported, cat(file_.path(), ": some of the tensors that make up ", key, " are q8_0 ",
                                               "and others are not; such files cannot be proved"));
    }
    check_rope_factors();
    check_tied_output();
    for (const GgufReader::Tensor& tensor : file_.tensors()) {
      if (tensor.again) {
        leftovers_.push_back({printable(tensor.name), cat(file_.path(), ", byte ", tensor.at),
                              "an earlier tensor has the same name", true});
      } else if (!used_.contains(&tensor)) {
        leftovers_.push_back({printable(tensor.name), file_.path(), "the model has no such tensor"});
      }
    }
  }

  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }
  std::vector<ckpt::Leftover> leftovers() const override { return leftovers_; }
  std::string describe(int32_t shard) const override {
    return cat(file_.path(), ":", places_.at(static_cast<size_t>(shard)).tensor->name);
  }

  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const Place& place = places_.at(static_cast<size_t>(shard));
    const int64_t item = core::size_of(shards_.dtype_of(static_cast<size_t>(shard)));
    try {
      detail::read_dense_box(shards_.extents(static_cast<size_t>(shard)), item, offset, extent, out,
                             [&](int64_t at, std::span<std::byte> bytes) {
                               read_run(place, at / item, static_cast<int64_t>(bytes.size()) / item, item,
                                        bytes.data());
                             });
    } catch (const Error& error) {
      throw error.within(cat("tensor ", place.tensor->name));
    }
  }

  bool is_quantized(std::string_view key) const { return quantized_.contains(key); }
  bool has_one_added(std::string_view key) const { return plus_one_.contains(key); }
  size_t quantized() const { return quantized_.size(); }
  const std::string& path() const { return file_.path(); }

 private:
  void add(const Family& family, const MappedTensor& mapped) {
    GgufPart part = gguf_part(family, info_.model, mapped);
    const GgufReader::Tensor* tensor = file_.find(part.tensor);
    if (tensor == nullptr) return;  // the proof lists what the source has and the file lacks
    used_.insert(tensor);
    const int64_t elements = core::num_elements(part.shape);
    if (mapped.expert >= 0) part.shape.insert(part.shape.begin(), info_.model.num_experts);
    if (tensor->shape != part.shape) {
      throw Error(ErrorCode::kCorruptData, cat(file_.path(), ": tensor ", tensor->name, " has shape ", tensor->shape,
                                               ", but for this model it should be ", part.shape));
    }
    if (!tensor->has_known_type()) {
      throw Error(ErrorCode::kUnsupported,
                  cat(file_.path(), ": tensor ", tensor->name, " is ", gguf_type_name(tensor->type),
                      "; only f32, f16, bf16 and q8_0 can be proved"));
    }
    const bool quantized = tensor->gguf_type() == GgufType::kQ8_0;
    (quantized ? quantized_ : plain_).insert(mapped.key);
    if (part.plus_one) plus_one_.insert(mapped.key);
    const int64_t first = std::max<int64_t>(0, mapped.expert) * elements;
    for (const TensorPiece& piece : mapped.pieces) {
      shards_.push_back({mapped.key, TensorRole::kParam, dtype_of(tensor->gguf_type()), mapped.global_shape,
                         piece.offset, piece.extent});
      places_.push_back({tensor, first + piece.row * part.columns, part.columns, part.head_rows});
    }
  }

  // Reads elements of a shard, in our order.
  void read_run(const Place& place, int64_t at, int64_t count, int64_t item, std::byte* out) const {
    if (place.head_rows == 0) return file_.read(*place.tensor, place.first + at, count, out);
    const int64_t half = place.head_rows / 2;
    while (count > 0) {  // row j of half h of a head is stored as row 2 j + h
      const int64_t row = at / place.columns, column = at % place.columns;
      const int64_t some = std::min(count, place.columns - column);
      const int64_t within = row % place.head_rows;
      const int64_t there = row - within + within % half * 2 + within / half;
      file_.read(*place.tensor, place.first + there * place.columns + column, some, out);
      out += some * item;
      at += some;
      count -= some;
    }
  }

  // Checks the RoPE frequency factors, which follow from the model.
  void check_rope_factors() {
    const std::vector<float> wanted = gguf_rope_factors(info_.model);
    const GgufReader::Tensor* tensor = file_.find(kRopeFactors);
    if (tensor == nullptr) {
      if (wanted.empty()) return;
      throw Error(ErrorCode::kCorruptData,
                  cat(file_.path(), ": tensor ", kRopeFactors, " is missing, which defines how ",
                      "the model's RoPE frequencies are scaled"));
    }
    used_.insert(tensor);
    std::vector<float> seen(wanted.size());
    const bool fits =
        tensor->type == static_cast<uint32_t>(GgufType::kF32) && std::cmp_equal(tensor->elements, wanted.size());
    if (fits) file_.read(*tensor, 0, tensor->elements, reinterpret_cast<std::byte*>(seen.data()));
    if (fits && seen == wanted) return;
    throw Error(ErrorCode::kCorruptData, cat(file_.path(), ": tensor ", kRopeFactors, " does not contain the ",
                                             wanted.size(), " factors of this model's RoPE frequencies"));
  }

  // A tied model needs no output layer; a stored one must equal the embedding.
  void check_tied_output() {
    const GgufReader::Tensor* output = file_.find(kOutput);
    if (info_.model.untie_embeddings_and_output_weights || output == nullptr) return;
    const GgufReader::Tensor* embedding = file_.find(kEmbedding);
    if (embedding == nullptr) return;
    used_.insert(output);
    bool equal = output->type == embedding->type && output->shape == embedding->shape && output->has_known_type();
    const int64_t step = 32 << 10;
    std::vector<std::byte> a(static_cast<size_t>(step) * sizeof(float)), b(a.size());
    for (int64_t first = 0; equal && first < output->elements; first += step) {
      const int64_t count = std::min(step, output->elements - first);
      file_.read(*output, first, count, a.data());
      file_.read(*embedding, first, count, b.data());
      equal = std::memcmp(a.data(), b.data(), static_cast<size_t>(count) * sizeof(float)) == 0;
    }
    if (equal) return;
    throw Error(ErrorCode::kCorruptData, cat(file_.path(), ": tensor ", kOutput, " differs from ", kEmbedding,
                                             ", but the model ties its output layer to the embeddings"));
  }

  GgufReader file_;
  ckpt::CheckpointInfo info_;
  ckpt::ShardTable shards_;
  std::vector<Place> places_;  // of shards_
  std::vector<ckpt::Leftover> leftovers_;
  std::set<const GgufReader::Tensor*> used_;
  std::set<std::string, std::less<>> quantized_, plain_, plus_one_;  // keys
};

// The values that the file must contain: norms plus 1, and matrices rounded to q8_0 blocks, both in fp32.
class ExpectedSource final : public ckpt::Source {
 public:
  ExpectedSource(ckpt::Source& source, const GgufSource& file) : source_(source) {
    const ckpt::ShardTable& shards = source.shards();
    for (size_t s = 0; s < shards.size(); ++s) {
      core::ShardedTensor shard = shards[s];
      const bool is_weight = shard.role == TensorRole::kParam;
      const Change change = is_weight && file.is_quantized(shard.key)    ? Change::kQuantize
                            : is_weight && file.has_one_added(shard.key) ? Change::kPlusOne
                                                                         : Change::kNone;
      if (change != Change::kNone) shard.dtype = DType::kFp32;
      const bool cut =
          change == Change::kQuantize && (shard.local_shape.size() != 2 || shard.global_offset[1] % kQ8Block != 0 ||
                                          shard.local_shape[1] % kQ8Block != 0);
      if (cut) {
        throw Error(ErrorCode::kUnsupported,
                    cat("--prove: ", source.describe(static_cast<int32_t>(s)), ": ", shard.key,
                        " is cut inside blocks of 32 columns of q8_0; prove against a source with another layout"));
      }
      shards_.push_back(shard);
      changes_.push_back(change);
    }
  }

  const ckpt::CheckpointInfo& info() const override { return source_.info(); }
  const ckpt::ShardTable& shards() const override { return shards_; }
  bool expect_stream(int64_t cache_bytes, int threads) override { return source_.expect_stream(cache_bytes, threads); }
  void begin_one_pass() override { source_.begin_one_pass(); }
  void end_one_pass(bool all) override { source_.end_one_pass(all); }
  int64_t scratch_bytes() const override { return source_.scratch_bytes(); }
  std::string describe(int32_t shard) const override { return source_.describe(shard); }
  std::vector<ckpt::Leftover> leftovers() const override { return source_.leftovers(); }

  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const auto index = static_cast<size_t>(shard);
    if (changes_[index] == Change::kNone || core::num_elements(extent) == 0) {
      return source_.read(shard, offset, extent, out);
    }
    if (changes_[index] == Change::kPlusOne) {
      read_floats(shard, offset, extent, out);
      for (int64_t i = 0; i < core::num_elements(extent); ++i) {
        float value = 0;
        std::memcpy(&value, out + i * int64_t{sizeof value}, sizeof value);
        value += 1.0f;
        std::memcpy(out + i * int64_t{sizeof value}, &value, sizeof value);
      }
      return;
    }
    // Extend the box to whole blocks.
    const int64_t begin = offset[1] / kQ8Block * kQ8Block;
    const int64_t columns = (offset[1] + extent[1] + kQ8Block - 1) / kQ8Block * kQ8Block - begin;
    const int64_t rows_at_once = std::clamp<int64_t>((int64_t{1} << 20) / columns, 1, extent[0]);
    std::vector<float> values(static_cast<size_t>(rows_at_once * columns));
    std::vector<std::byte> blocks(static_cast<size_t>(gguf_bytes(GgufType::kQ8_0, rows_at_once * columns)));
    for (int64_t row = 0; row < extent[0]; row += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, extent[0] - row);
      read_floats(shard, {offset[0] + row, begin}, {rows, columns}, reinterpret_cast<std::byte*>(values.data()));
      quantize_q8_0(values.data(), rows * columns, blocks.data());
      dequantize_q8_0(blocks.data(), rows * columns, values.data());
      for (int64_t r = 0; r < rows; ++r, out += extent[1] * int64_t{sizeof(float)}) {
        std::memcpy(out, values.data() + r * columns + offset[1] - begin,
                    static_cast<size_t>(extent[1]) * sizeof(float));
      }
    }
  }

 private:
  enum class Change { kNone, kPlusOne, kQuantize };

  void read_floats(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) const {
    const DType stored = source_.shards().dtype_of(static_cast<size_t>(shard));
    if (stored == DType::kFp32) return source_.read(shard, offset, extent, out);
    const int64_t count = core::num_elements(extent);
    std::vector<std::byte> read(static_cast<size_t>(count * core::size_of(stored)));
    source_.read(shard, offset, extent, read.data());
    ckpt::convert_elements(read.data(), stored, out, DType::kFp32, count);
  }

  ckpt::Source& source_;
  ckpt::ShardTable shards_;
  std::vector<Change> changes_;  // of shards_
};

}  // namespace

bool is_gguf(const std::string& path) {
  std::error_code error;
  const std::string file = file_of(path);
  if (!fs::is_regular_file(file, error)) return false;
  const core::File opened = core::File::open_read(file);
  char magic[4] = {};
  if (opened.size_bytes() < std::ssize(magic)) return false;
  opened.pread(std::as_writable_bytes(std::span(magic)), 0);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

std::unique_ptr<ckpt::Source> open_gguf(const std::string& path, const ckpt::Source& original, const Family* family) {
  ckpt::require_model(original.info(), "a gguf file");
  return std::make_unique<GgufSource>(path, original, family);
}

ckpt::ProofReport prove_gguf(ckpt::Source& source, const std::string& path, const Family* family,
                             const ckpt::ProveOptions& options) {
  ckpt::require_model(source.info(), "a gguf file");
  std::unique_ptr<GgufSource> file;
  try {
    file = std::make_unique<GgufSource>(path, source, family);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData) throw;
    return ckpt::refused_target(error);
  }
  ExpectedSource expected(source, *file);
  ckpt::ProofReport report = ckpt::prove(expected, *file, options);
  if (file->quantized() > 0) {
    report.notes.push_back(cat(file->path(), ": of ", file->quantized(),
                               " tensors in q8_0 it is proved that every block of 32 is the source's values as ggml "
                               "rounds them (quantize_row_q8_0_ref); the values themselves are not the source's"));
  }
  return report;
}

}  // namespace ms::convert
