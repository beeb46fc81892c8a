#include "convert/named_target.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>

#include "convert/detail/printable.h"
#include "convert/hf_weights.h"
#include "convert/huggingface_config.h"
#include "convert/named_sink.h"
#include "convert/torch/archive_sink.h"
#include "convert/torch/dcp_layout.h"
#include "core/error.h"
#include "core/io/file.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Dims;
using core::DType;
using core::Error;
using core::ErrorCode;
using core::TensorRole;
using detail::printable;
using nlohmann::json;

constexpr std::string_view kState = "optim.state.", kGroups = "optim.param_groups.";
constexpr int64_t kMaxCopiedBytes = 256 << 20;

bool is_float(DType dtype) { return dtype == DType::kFp32 || dtype == DType::kBf16 || dtype == DType::kFp16; }

// Compares numbers by value: layers.2 before layers.10. Names that differ only in leading zeros are compared as text.
bool natural_less(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const auto number = [&](std::string_view text, size_t& at) {
        while (at < text.size() && text[at] == '0') ++at;
        const size_t begin = at;
        while (at < text.size() && digit(text[at])) ++at;
        return text.substr(begin, at - begin);
      };
      const std::string_view x = number(a, i), y = number(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  return std::tuple(a.size() - i, a) < std::tuple(b.size() - j, b);
}

// Lists the tensors of the source to write, in the order of the result.
std::vector<NamedOutput> outputs_of(const ckpt::Source& source, const NamedTargetOptions& options,
                                    std::vector<std::string>& decisions) {
  const ckpt::ShardTable& shards = source.shards();
  std::vector<NamedOutput> outputs;
  std::map<std::pair<DType, DType>, int64_t> casts;
  std::map<DType, int64_t> kept;
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const TensorRole role = shards.role(tensor);
    NamedOutput output{std::string(shards.key(tensor)), role, shards.dtype(tensor), {}};
    if (is_optimizer_state(role, output.key) && !options.with_optimizer) continue;
    if (role == TensorRole::kMaster) {
      throw Error(ErrorCode::kUnsupported,
                  cat("there are fp32 master weights, such as that of ", printable(output.key),
                      ", which these formats cannot hold; give --drop-optimizer to leave them out"));
    }
    const auto shape = shards.global_shape(tensor);
    output.shape.assign(shape.begin(), shape.end());
    if (options.dtype && role == TensorRole::kParam && output.dtype != *options.dtype) {
      const DType from = output.dtype;
      if (is_float(from)) output.dtype = *options.dtype;
      (is_float(from) ? casts[{from, output.dtype}] : kept[from]) += 1;
    }
    outputs.push_back(std::move(output));
  }
  for (const auto& [types, count] : casts) {
    decisions.push_back(cat(count, " tensors are cast from ", core::dtype_name(types.first), " to ",
                            core::dtype_name(types.second), ", rounded to nearest even"));
  }
  for (const auto& [dtype, count] : kept) {
    decisions.push_back(cat(count, " tensors keep their type, ", core::dtype_name(dtype)));
  }
  std::stable_sort(outputs.begin(), outputs.end(), [](const NamedOutput& a, const NamedOutput& b) {
    if (a.role != b.role) return a.role < b.role;
    return natural_less(a.key, b.key);
  });
  return outputs;
}

// Selects the files that belong to a model besides its weights: configs, tokenizers; no code, and no weight index.
bool goes_along(const std::string& name) {
  constexpr std::array<std::string_view, 5> kEndings = {".json", ".txt", ".model", ".jinja", ".tiktoken"};
  return !name.ends_with(".index.json") && name != "reference.json" &&
         std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view ending) { return name.ends_with(ending); });
}

// Adjusts the element type in config.json if it changes.
std::string config_text(const std::string& text, const fs::path& path, DType dtype) {
  json config = read_json(path.string(), kMaxCopiedBytes);
  const std::string name = dtype == DType::kFp32 ? "float32" : dtype == DType::kBf16 ? "bfloat16" : "float16";
  bool changed = false;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!config.is_object() || !config.contains(key) || !config[key].is_string() || config[key] == name) continue;
    config[key] = name;
    changed = true;
  }
  return changed ? hf_json_text(config) : text;
}

std::vector<std::pair<std::string, std::string>> texts_of(const NamedTargetOptions& options) {
  std::vector<std::pair<std::string, std::string>> texts;
  const std::pair<const char*, const json&> given[] = {{"config.json", options.config},
                                                       {"generation_config.json", options.generation_config}};
  const auto is_given = [&](const std::string& name) {
    return std::any_of(std::begin(given), std::end(given),
                       [&](const auto& file) { return name == file.first && !file.second.is_null(); });
  };
  for (const auto& [name, content] : given) {
    if (!content.is_null()) texts.emplace_back(name, hf_json_text(content));
  }
  if (options.copy_from.empty()) return texts;
  std::vector<fs::path> paths;
  std::error_code error;
  fs::path folder = options.copy_from;
  if (!fs::is_directory(folder, error)) folder = folder.parent_path();  // the file of a config.json
  core::confine_reads(folder.string());
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file(error) && goes_along(name) && !is_given(name)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    std::string text = core::read_text(path.string(), kMaxCopiedBytes);
    if (options.dtype && path.filename() == "config.json") text = config_text(text, path, *options.dtype);
    texts.emplace_back(path.filename().string(), std::move(text));
  }
  return texts;
}

// Writes a model's folder, split as transformers does, or one file.
NamedTarget files_target(const std::vector<NamedOutput>& outputs, const NamedTargetOptions& options) {
  NamedSinkOptions sink;
  const bool alone = options.form == NamedForm::kFile;
  if (alone) {
    const fs::path path(options.save_dir);
    const std::string ending = path.extension().string();
    constexpr std::array<std::string_view, 4> kTorch = {".pt", ".pth", ".bin", ".ckpt"};
    sink.torch = std::find(kTorch.begin(), kTorch.end(), ending) != kTorch.end();
    if (!sink.torch && ending != ".safetensors") {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--save-dir ", options.save_dir,
                      ": for a single file the suffix must be .safetensors, .pt, .pth, .bin or .ckpt"));
    }
    if (fs::exists(path)) {
      throw Error(ErrorCode::kInvalidArgument, cat(options.save_dir, " already exists; give another --save-dir"));
    }
    sink.folder = path.has_parent_path() ? path.parent_path() : ".";
    sink.single = path.filename().string();
  } else {
    sink.torch = options.form == NamedForm::kHuggingFaceBin;
    sink.folder = options.save_dir;
    sink.stem = !options.stem.empty() ? options.stem : sink.torch ? "pytorch_model" : "model";
    sink.max_shard_size_bytes = options.max_shard_size_bytes;
    sink.texts = texts_of(options);
  }
  sink.writing = options.writing;
  sink.outputs = outputs;
  NamedTarget target;
  for (const NamedOutput& output : outputs) {
    if (core::num_elements(output.shape) == 0) continue;  // in the header only
    target.shards.push_back(
        {output.key, output.role, output.dtype, output.shape, Dims(output.shape.size(), 0), output.shape});
  }
  target.sink = make_named_sink(std::move(sink));
  return target;
}

// ("model", NAME), ("optim", "state", NAME, FIELD).
DcpPath path_of(const NamedOutput& output) {
  if (output.role == TensorRole::kExpAvg || output.role == TensorRole::kExpAvgSq) {
    return {"optim", "state", output.key, std::string(core::role_name(output.role))};
  }
  if (!is_optimizer_state(output.role, output.key)) return {"model", output.key};
  const size_t dot = output.key.rfind('.');
  if (output.key.starts_with(kGroups)) return {"optim", output.key.substr(std::string_view("optim.").size())};
  return {"optim", "state", output.key.substr(kState.size(), dot - kState.size()), output.key.substr(dot + 1)};
}

// Returns the source's place if the source is DCP too.
DcpEntries::Place place_of(const NamedOutput& output, const DcpEntries& source) {
  const auto found = source.tensors.find({output.role, output.key});
  if (found != source.tensors.end()) return found->second;
  DcpEntries::Place place{"", path_of(output)};
  for (const auto& step : place.path) place.key += cat(place.key.empty() ? "" : ".", std::get<std::string>(step));
  return place;
}

NamedTarget dcp_target(const std::vector<NamedOutput>& outputs, const NamedTargetOptions& options) {
  if (fs::exists(options.save_dir)) {
    throw Error(ErrorCode::kInvalidArgument, cat(options.save_dir, " already exists; give another --save-dir"));
  }
  DcpLayout layout;
  NamedTarget target;
  ArchiveSinkOptions sink;
  for (const NamedOutput& output : outputs) {
    const DcpEntries::Place place = place_of(output, options.entries);
    const Dims& shape = output.shape;
    const size_t tensor = layout.add_tensor(place.key, from_core_dtype(output.dtype), shape, place.path);
    if (shape.empty() || core::num_elements(shape) == 0) {
      const ArchivePlace whole = layout.add_chunk(tensor, Dims(shape.size(), 0), shape, layout.file_of_rank(0));
      if (!shape.empty()) continue;
      target.shards.push_back({output.key, output.role, output.dtype, shape, {}, {}});
      sink.places.push_back(whole);
      continue;
    }
    // torch.chunk's cut along the first axis, as in FSDP2.
    const int64_t each = (shape[0] + options.data_parallel_size - 1) / options.data_parallel_size;
    for (int rank = 0; rank < options.data_parallel_size && rank * each < shape[0]; ++rank) {
      Dims offset(shape.size(), 0), extent = shape;
      offset[0] = rank * each;
      extent[0] = std::min(each, shape[0] - offset[0]);
      sink.places.push_back(layout.add_chunk(tensor, offset, extent, layout.file_of_rank(rank)));
      target.shards.push_back({output.key, output.role, output.dtype, shape, offset, extent});
    }
  }
  for (const DcpEntries::Object& object : options.entries.objects) {
    layout.add_object(object.place.key, object.content.pickle, layout.file_of_rank(0), object.place.path,
                      object.content.storages);
  }
  sink.root = options.save_dir;
  sink.writing = options.writing;
  sink.files = layout.take_files();
  for (auto& [name, text] : texts_of(options)) {
    sink.texts.emplace_back(name, [text = std::move(text)] { return text; });
  }
  sink.texts.emplace_back(".metadata", [layout = std::move(layout)] { return layout.metadata(); });
  target.sink = make_archive_sink(std::move(sink));
  return target;
}

}  // namespace

bool is_optimizer_state(TensorRole role, std::string_view key) {
  if (role != TensorRole::kBuffer) return role != TensorRole::kParam;
  return key.starts_with(kGroups) || (key.starts_with(kState) && key.rfind('.') >= kState.size());
}

std::string weight_stem_of(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return "";
  const auto weights = find_weight_files(folder);
  if (!weights) return "";
  for (const char* stem : {"adapter_model", "diffusion_pytorch_model"}) {
    if (weights->rule().starts_with(stem)) return stem;
  }
  return "";
}

NamedTarget make_named_target(const ckpt::Source& source, const NamedTargetOptions& options,
                              std::vector<std::string>& decisions) {
  if (options.data_parallel_size < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--target-data-parallel-size ", options.data_parallel_size, ": must be at least 1"));
  }
  const std::vector<NamedOutput> outputs = outputs_of(source, options, decisions);
  return options.form == NamedForm::kDcp ? dcp_target(outputs, options) : files_target(outputs, options);
}

}  // namespace ms::convert
