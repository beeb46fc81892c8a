#include "convert/gguf_target.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "convert/gguf/architecture.h"
#include "convert/gguf/layout.h"
#include "convert/gguf/tokenizer.h"
#include "convert/huggingface_config.h"
#include "convert/name_map.h"
#include "core/error.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;

constexpr uint32_t kQuantizationVersion = 2;
constexpr const char* kFile = "model.gguf";
constexpr const char* kRopeFactors = "rope_freqs.weight";

// Where a target is stored, and how it is transformed.
struct Place {
  size_t tensor = 0;
  int64_t first = 0;          // element of the tensor
  int64_t columns = 1;        // per row
  int64_t head_rows = 0;      // reorder rows within heads of this many rows; 0: do not
  bool centred_on_1 = false;  // add 1
};

struct Plan {
  std::vector<GgufTensor> tensors;
  std::vector<Place> places;  // one per target
  std::vector<float> rope_factors;
  GgufValues values;
};

// llama.cpp's number for the type of the matrices.
uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::kF32:
      return 0;
    case GgufType::kF16:
      return 1;
    case GgufType::kQ8_0:
      return 7;
    case GgufType::kBF16:
      return 32;
  }
  return 0;
}

GgufType type_of(DType dtype) {
  return dtype == DType::kBf16 ? GgufType::kBF16 : dtype == DType::kFp16 ? GgufType::kF16 : GgufType::kF32;
}

DType dtype_of(GgufType type) {
  return type == GgufType::kBF16 ? DType::kBf16 : type == GgufType::kF16 ? DType::kFp16 : DType::kFp32;
}

class GgufSink final : public ckpt::Sink {
 public:
  GgufSink(const std::string& folder, Plan plan, WriteOptions writing)
      : folder_(folder), plan_(std::move(plan)), result_(folder_, std::move(writing)) {
    refuse_existing_file();
  }

  void begin(const ckpt::CheckpointInfo&, const ckpt::ShardTable& targets) override {
    MS_CHECK(plan_.places.size() == targets.size(), plan_.places.size(), " places of ", targets.size(), " targets");
    layout_ = lay_out_gguf(plan_.values, plan_.tensors);
    PlacedResult::FileSpec spec{kFile, layout_.file_bytes};
    LayoutHash layout;
    layout.add(targets);
    layout.add(layout_.header);
    for (size_t t = 0; t < targets.size(); ++t) {
      spec.parts += targets.elements(t);
      layout.add(plan_.places[t].first);
    }
    result_.opened = [this](size_t, core::PlacedFile& file) { write_header(file); };
    result_.begin({std::move(spec)}, std::move(layout));
    refuse_existing_file();  // another process may have created it before this one got the lock
  }

  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override {
    const Place& place = plan_.places[static_cast<size_t>(target)];
    const GgufType type = plan_.tensors[place.tensor].type;
    const int64_t item = core::size_of(dtype_of(type));
    std::vector<std::byte> ordered, changed;
    if (place.head_rows > 0) {
      ordered.resize(static_cast<size_t>(count * item));
      order_rows(place, item, count, data, ordered.data());
      data = ordered.data();
    }
    std::span<const std::byte> bytes(data, static_cast<size_t>(count * item));
    if (place.centred_on_1) {
      changed.assign(bytes.begin(), bytes.end());
      for (int64_t i = 0; i < count; ++i) {
        float value = 0;
        std::memcpy(&value, changed.data() + i * item, sizeof value);
        value += 1.0f;
        std::memcpy(changed.data() + i * item, &value, sizeof value);
      }
      bytes = changed;
    } else if (type == GgufType::kQ8_0) {
      std::vector<float> values(static_cast<size_t>(count));
      std::memcpy(values.data(), data, values.size() * sizeof(float));
      changed.resize(static_cast<size_t>(gguf_bytes(type, count)));
      quantize_q8_0(values.data(), count, changed.data());
      bytes = changed;
    }
    result_.write(0, bytes, layout_.offsets[place.tensor] + gguf_bytes(type, place.first + first));
    result_.done(0, count);
  }

  int64_t page_offset(int32_t target, int64_t first) override {
    const Place& place = plan_.places[static_cast<size_t>(target)];
    const int64_t within = gguf_bytes(plan_.tensors[place.tensor].type, place.first + first);
    return (layout_.offsets[place.tensor] + within) % core::kDirectAlignment;
  }

  bool keep(int32_t target, int64_t first, int64_t count, std::byte* scratch) override {
    const Place& place = plan_.places[static_cast<size_t>(target)];
    const GgufType type = plan_.tensors[place.tensor].type;
    if (place.centred_on_1) return false;
    // For q8_0 the scratch buffer receives the blocks: the original values are lost.
    const std::span<std::byte> bytes(scratch, static_cast<size_t>(gguf_bytes(type, count)));
    if (!result_.keep(0, bytes, layout_.offsets[place.tensor] + gguf_bytes(type, place.first + first))) return false;
    if (place.head_rows > 0 && type != GgufType::kQ8_0) {
      const std::vector<std::byte> ordered(bytes.begin(), bytes.end());
      order_rows(place, core::size_of(dtype_of(type)), count, ordered.data(), scratch, true);
    }
    result_.done(0, count);
    return true;
  }

  // Whole heads if rows are reordered, and whole blocks.
  int64_t chunk_elements(const core::ShardedTensor& target) const override {
    const int64_t rows = target.key.ends_with("linear_qkv.weight") ? unit_rows_ : 1;
    const int64_t unit = target.local_shape.size() == 2 ? target.local_shape[1] * rows : kQ8Block;
    const int64_t chunk = ckpt::Sink::chunk_elements(target);
    return std::max<int64_t>(1, chunk / unit) * unit;
  }
  int64_t scratch_bytes() const override { return 3 * (int64_t{8} << 20); }

  fs::path commit() override {
    result_.commit();
    return path();
  }

  void set_unit_rows(int64_t rows) { unit_rows_ = rows; }

 private:
  fs::path path() const { return folder_ / kFile; }
  void refuse_existing_file() const {
    if (!fs::exists(path())) return;
    throw Error(ErrorCode::kInvalidArgument, cat(path().string(), " already exists; give a new folder"));
  }
  void write_header(core::PlacedFile& file) const {
    file.write(std::as_bytes(std::span(layout_.header)), 0);
    if (plan_.rope_factors.empty()) return;
    const auto found = std::find_if(plan_.tensors.begin(), plan_.tensors.end(),
                                    [](const GgufTensor& tensor) { return tensor.name == kRopeFactors; });
    file.write(std::as_bytes(std::span(plan_.rope_factors)),
               layout_.offsets[static_cast<size_t>(found - plan_.tensors.begin())]);
  }

  // Moves row j of half h of a head to row 2 j + h, or back.
  static void order_rows(const Place& place, int64_t item, int64_t count, const std::byte* in, std::byte* out,
                         bool back = false) {
    const int64_t row_bytes = place.columns * item, rows = count / place.columns, half = place.head_rows / 2;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t head = row / place.head_rows, within = row % place.head_rows;
      const int64_t to = head * place.head_rows + within % half * 2 + within / half;
      std::memcpy(out + (back ? row : to) * row_bytes, in + (back ? to : row) * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
  }

  fs::path folder_;
  Plan plan_;
  PlacedResult result_;
  GgufLayout layout_;
  int64_t unit_rows_ = 1;
};

}  // namespace

GgufTarget make_gguf_target(const ckpt::Source& source, const GgufTargetOptions& options,
                            const std::function<DType(const std::string& key)>& dtype,
                            std::vector<std::string>& decisions) {
  const core::TransformerConfig& model = source.info().model;
  const std::shared_ptr<const Family> held = family_of_result(options.config, source.info().model_extra);
  const Family& family = *held;
  const std::string_view architecture = gguf_architecture(family, model);
  Plan plan;
  GgufTarget target;
  GgufType most = GgufType::kF32;
  int64_t unquantized = 0;
  bool permutes = false;
  std::map<std::string, size_t> stacks;  // experts of a layer: [experts, rows, columns]
  for_each_tensor(family, model, [&](const MappedTensor& mapped) {
    const GgufPart part = gguf_part(family, model, mapped);
    GgufTensor tensor{part.tensor, part.shape};
    const bool matrix = tensor.shape.size() == 2 && !gguf_is_exact(tensor.name);
    if (matrix) {
      tensor.type = type_of(dtype(mapped.key));
      if (options.q8_0) tensor.type = tensor.shape[1] % kQ8Block == 0 ? GgufType::kQ8_0 : GgufType::kF16;
      if (plan.tensors.empty()) most = tensor.type;
    }
    permutes = permutes || part.head_rows > 0;
    size_t at = plan.tensors.size();
    int64_t first = 0;
    if (mapped.expert >= 0) {
      at = stacks.emplace(tensor.name, at).first->second;
      first = mapped.expert * core::num_elements(tensor.shape);
    }
    for (const TensorPiece& piece : mapped.pieces) {
      plan.places.push_back({at, first + piece.row * part.columns, part.columns, part.head_rows, part.plus_one});
      target.shards.push_back({mapped.key, core::TensorRole::kParam, dtype_of(tensor.type), mapped.global_shape,
                               piece.offset, piece.extent});
    }
    if (at < plan.tensors.size()) return;
    unquantized += options.q8_0 && matrix && tensor.type != GgufType::kQ8_0 ? 1 : 0;
    if (mapped.expert >= 0) tensor.shape.insert(tensor.shape.begin(), model.num_experts);
    plan.tensors.push_back(std::move(tensor));
  });
  plan.rope_factors = gguf_rope_factors(model);
  if (!plan.rope_factors.empty()) {
    plan.tensors.push_back({kRopeFactors, {static_cast<int64_t>(plan.rope_factors.size())}, GgufType::kF32});
  }
  plan.values.set("general.architecture", architecture);
  plan.values.set("general.file_type", file_type(options.q8_0 ? GgufType::kQ8_0 : most));
  plan.values.set("general.quantization_version", kQuantizationVersion);
  add_gguf_model(architecture, model, plan.values, decisions);
  add_gguf_tokenizer(options.tokenizer_folder, architecture, model.vocab_size, plan.values, decisions);
  if (permutes) decisions.push_back("rows of q and k are reordered to neighbouring rotary pairs");
  if (model.apply_layernorm_1p) decisions.push_back("1 is added to the weights of norms");
  if (unquantized > 0)
    decisions.push_back(cat(unquantized, " matrices whose row length is not a multiple of 32 are f16"));
  auto sink = std::make_unique<GgufSink>(options.folder, std::move(plan), options.writing);
  if (permutes) sink->set_unit_rows(model.kv_channels);
  target.sink = std::move(sink);
  return target;
}

}  // namespace ms::convert
