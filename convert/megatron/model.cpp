#include "convert/megatron/model.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>

#include "convert/detail/printable.h"
#include "convert/megatron/converter_args.h"
#include "convert/megatron/names.h"
#include "core/error.h"
#include "core/layout/tensor_cut.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

constexpr std::string_view kEmbedding = "embedding.word_embeddings.weight";
constexpr int kMaxDepth = 8;  // nesting depth of dictionaries

struct FoundTensor {
  std::string name;
  MegatronName parsed;
  TorchTensor tensor;
  bool is_grouped = false;
  int64_t in_tensor = 1;
  RowsOfBlocks rows;
};
using FoundChunk = std::vector<FoundTensor>;

bool is_dictionary(PickleValue value) {
  return value.is(PickleKind::kDict) || value.is_call_of("collections", "OrderedDict") ||
         value.is_call_of("collections", "defaultdict");
}

class ChunkReader {
 public:
  explicit ChunkReader(const TorchFile& file) : file_(file) {}

  // Appends the tensors of a dictionary and of the dictionaries in it.
  void read(PickleValue dictionary, const std::string& prefix, int depth, FoundChunk& chunk) {
    if (depth > kMaxDepth)
      throw Error(ErrorCode::kCorruptData, cat(file_.where(), ": dictionaries are nested too deeply"));
    for (const auto& [key, value] : dictionary.pairs()) {
      if (!key.is(PickleKind::kString)) {
        throw Error(ErrorCode::kCorruptData, cat(file_.where(), ": the model has a key that is not a string"));
      }
      const std::string name = cat(prefix, key.text());
      if (is_megatron_buffer(name)) {
        ++skipped_;
        continue;
      }
      if (is_dictionary(value)) {
        read(value, name + ".", depth + 1, chunk);
        continue;
      }
      auto tensor = file_.tensor(value);
      if (!tensor) {
        throw Error(ErrorCode::kUnsupported,
                    cat(file_.where(), ": ", printable(name), " of the model is not a tensor"));
      }
      chunk.push_back({name, parse_megatron_name(name), std::move(*tensor)});
    }
  }
  int64_t skipped() const { return skipped_; }

 private:
  const TorchFile& file_;
  int64_t skipped_ = 0;
};

std::vector<FoundChunk> find_chunks(const MegatronRank& rank, int vpp, int64_t& skipped) {
  const std::string& path = rank.file->where();
  const auto version = rank.find("checkpoint_version");
  if (!version || version->real() < 2) {
    throw Error(ErrorCode::kUnsupported,
                cat(path, ": checkpoint_version ", version ? version->real() : 0.0,
                    ": its queries, keys and values are in an older order. Load and save it once with a Megatron from "
                    "2021 to 2023, which writes 3.0"));
  }
  std::vector<FoundChunk> chunks(static_cast<size_t>(vpp));
  ChunkReader reader(*rank.file);
  for (int chunk = 0; chunk < vpp; ++chunk) {
    const std::string key = vpp == 1 ? "model" : cat("model", chunk);
    const auto dictionary = rank.find(key);
    if (!dictionary || !is_dictionary(*dictionary)) {
      throw Error(ErrorCode::kCorruptData, cat(path, ": no dictionary ", key, ", but args say ", vpp,
                                               " virtual pipeline stage", vpp == 1 ? "" : "s"));
    }
    reader.read(*dictionary, "", 0, chunks[static_cast<size_t>(chunk)]);
  }
  if (rank.find(vpp == 1 ? std::string("model0") : cat("model", vpp))) {
    throw Error(ErrorCode::kCorruptData, cat(path, ": holds more model dictionaries than the ", vpp, " that args say"));
  }
  skipped += reader.skipped();
  return chunks;
}

int64_t layers_in(const FoundChunk& chunk) {
  int64_t last = -1;
  for (const FoundTensor& found : chunk) last = std::max(last, found.parsed.layer);
  return last + 1;
}

// Counts the layers of each chunk by its keys; the ranks of a stage must agree.
std::vector<int64_t> layer_list(const MegatronTree& tree, const std::vector<std::vector<FoundChunk>>& found,
                                int64_t num_layers) {
  std::vector<int64_t> list;
  int64_t sum = 0;
  for (int chunk = 0; chunk < tree.vpp; ++chunk) {
    for (int pp = 0; pp < tree.pp; ++pp) {
      const size_t first = static_cast<size_t>(pp) * tree.ranks_of_stage();
      const int64_t layers = layers_in(found[first][static_cast<size_t>(chunk)]);
      for (size_t rank = first; rank < first + tree.ranks_of_stage(); ++rank) {
        if (const int64_t own = layers_in(found[rank][static_cast<size_t>(chunk)]); own != layers) {
          throw Error(ErrorCode::kCorruptData,
                      cat(tree.ranks[rank].file->where(), ": holds ", own, " layers, but ",
                          tree.ranks[first].file->where(), " of the same stage holds ", layers));
        }
      }
      list.push_back(layers);
      sum += layers;
    }
  }
  if (sum != num_layers) {
    throw Error(ErrorCode::kCorruptData, cat(tree.folder.string(), ": its ranks hold ", sum, " layers ", list,
                                             ", but args.num_layers is ", num_layers));
  }
  if (std::find(list.begin(), list.end(), 0) != list.end()) {
    throw Error(ErrorCode::kUnsupported, cat(tree.folder.string(), ": a pipeline stage without layers ", list));
  }
  if (std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) == list.end()) list.clear();  // even
  return list;
}

// Checks that the files have as many layers as args claim, before any allocation of that size.
void check_layers_with_noops(const MegatronTree& tree, const std::vector<std::vector<FoundChunk>>& found,
                             int64_t num_layers) {
  int64_t sum = 0;
  for (size_t rank = 0; rank < found.size(); rank += tree.ranks_of_stage()) {
    for (const FoundChunk& chunk : found[rank]) {
      std::set<int64_t> layers;
      for (const FoundTensor& tensor : chunk) layers.insert(tensor.parsed.layer);
      sum += static_cast<int64_t>(layers.size()) - static_cast<int64_t>(layers.count(-1));
    }
  }
  if (sum == num_layers) return;
  throw Error(ErrorCode::kCorruptData,
              cat(tree.folder.string(), ": its ranks hold ", sum, " layers, but args.num_layers without ",
                  tree.extras.noop_layers.size(), " no-op layers is ", num_layers));
}

// Rows of the word embeddings over all ranks.
int64_t padded_rows(const MegatronTree& tree, const std::vector<std::vector<FoundChunk>>& found) {
  const MegatronRank& rank = tree.ranks[0];
  const FoundChunk& chunk = found[0][0];
  const auto embedding = std::find_if(chunk.begin(), chunk.end(), [](const FoundTensor& t) {
    return t.parsed.layer < 0 && t.parsed.rest == kEmbedding;
  });
  if (embedding == chunk.end() || embedding->tensor.shape.empty()) {
    throw Error(ErrorCode::kCorruptData, cat(rank.file->where(), ": tensor ", kEmbedding, " is missing"));
  }
  const auto rows = static_cast<int64_t>(std::min<uint64_t>(embedding->tensor.shape[0], INT32_MAX)) * tree.tp;
  const auto said = rank.args->integer("padded_vocab_size");
  if (said && *said != rows) {
    throw Error(ErrorCode::kCorruptData, cat(rank.file->where(), ": ", kEmbedding, " has ", rows, " rows on ", tree.tp,
                                             " tensor-parallel ranks, but args.padded_vocab_size is ", *said));
  }
  return rows;
}

// Splits the grouped experts of a rank into views of the tensor, which is laid out as experts x inputs x outputs.
// Source: megatron/core/transformer/moe/experts.py (GroupedMLP).
void split_grouped_experts(const MegatronRank& rank, int64_t experts, FoundChunk& chunk) {
  FoundChunk all;
  for (FoundTensor& found : chunk) {
    if (!is_grouped_experts(found.parsed)) {
      all.push_back(std::move(found));
      continue;
    }
    const bool first = found.parsed.rest.back() == '1';
    const auto count = static_cast<uint64_t>(experts);
    const TorchTensor& whole = found.tensor;
    if (whole.shape.size() != 2 || !whole.is_dense() || whole.shape[first ? 1 : 0] % count != 0) {
      throw Error(ErrorCode::kCorruptData, cat(rank.file->where(), ": tensor ", printable(found.name), " of shape ",
                                               whole.shape, " does not hold ", experts, " experts"));
    }
    const uint64_t inputs = first ? whole.shape[0] : whole.shape[0] / count;
    const uint64_t outputs = first ? whole.shape[1] / count : whole.shape[1];
    for (uint64_t e = 0; e < count; ++e) {
      FoundTensor one{cat(found.name, "[", e, "]"), found.parsed, whole, true, e == 0 ? experts : 0};
      one.parsed.expert = static_cast<int64_t>(e);
      const std::string layer = one.parsed.rest.substr(0, one.parsed.rest.size() - std::string_view("weight1").size());
      one.parsed.rest =
          cat(layer, "local_experts.", kExpertPlaceholder, first ? ".linear_fc1" : ".linear_fc2", ".weight");
      one.tensor.shape = {outputs, inputs};
      one.tensor.stride = {1, outputs};
      one.tensor.offset += e * inputs * outputs;
      all.push_back(std::move(one));
    }
  }
  chunk = std::move(all);
}

// MindSpeed-LLM's latent attention has one linear_qkv, replicated over tensor-parallel ranks, that joins the
// projections of the hidden state to the queries (or their low-rank vector) and to keys and values. Splits it into
// views of its rows; returns true if there was one.
// Source: mindspeed_llm/tasks/checkpoint/convert_hf2mg.py (qkv_type pack_mla).
bool split_joined_projections(const MegatronRank& rank, const core::TransformerConfig& model, FoundChunk& chunk) {
  constexpr std::string_view kJoined = "self_attention.linear_qkv.weight", kOf = "linear_qkv.weight";
  const int64_t queries = model.q_lora_rank > 0 ? model.q_lora_rank : model.latent_query_rows();
  const int64_t keys = model.kv_lora_rank + model.qk_pos_emb_head_dim;
  FoundChunk all;
  bool found_any = false;
  for (FoundTensor& found : chunk) {
    if (!found.parsed.rest.ends_with(kJoined)) {
      all.push_back(std::move(found));
      continue;
    }
    found_any = true;
    if (found.tensor.shape.size() != 2 || found.tensor.shape[0] != static_cast<uint64_t>(queries + keys)) {
      throw Error(ErrorCode::kCorruptData,
                  cat(rank.file->where(), ": tensor ", printable(found.name), " of shape ", found.tensor.shape,
                      " does not hold the ", queries, " and ", keys, " rows of latent attention"));
    }
    const std::string layer = found.parsed.rest.substr(0, found.parsed.rest.size() - kOf.size());
    FoundTensor first = found, second = std::move(found);
    first.in_tensor = 2;
    second.in_tensor = 0;
    first.name += "[queries]";
    first.parsed.rest = cat(layer, model.q_lora_rank > 0 ? "linear_q_down_proj.weight" : "linear_q_proj.weight");
    first.tensor.shape[0] = static_cast<uint64_t>(queries);
    second.name += "[keys and values]";
    second.parsed.rest = cat(layer, "linear_kv_down_proj.weight");
    second.tensor.shape[0] = static_cast<uint64_t>(keys);
    second.tensor.offset += static_cast<uint64_t>(queries) * second.tensor.stride[0];
    all.push_back(std::move(first));
    all.push_back(std::move(second));
  }
  chunk = std::move(all);
  return found_any;
}

// With --mla-mm-split MindSpeed-LLM's latent attention has four up projections: the parts of each query head without
// and with RoPE, keys, and values.
// Source: mindspeed_llm/tasks/checkpoint/convert_hf2mg.py (mla_mm_split).
void name_split_projections(const core::TransformerConfig& model, FoundChunk& chunk) {
  const int64_t plain = model.qk_head_dim, turned = model.qk_pos_emb_head_dim, values = model.v_head_dim;
  struct Part {
    std::string_view name, of;
    RowsOfBlocks rows;
  };
  const Part parts[] = {{"linear_qk_nope.weight", "linear_q_up_proj.weight", {plain + turned, 0, plain}},
                        {"linear_qk_rope.weight", "linear_q_up_proj.weight", {plain + turned, plain, turned}},
                        {"linear_kv_nope.weight", "linear_kv_up_proj.weight", {plain + values, 0, plain}},
                        {"linear_v.weight", "linear_kv_up_proj.weight", {plain + values, plain, values}}};
  for (FoundTensor& found : chunk) {
    std::string& rest = found.parsed.rest;
    for (const Part& part : parts) {
      if (!rest.ends_with(cat("self_attention.", part.name))) continue;
      rest = cat(rest.substr(0, rest.size() - part.name.size()), part.of);
      found.rows = part.rows;
      break;
    }
  }
}

// megatron-core's own layers cut latent attention's down projections by rows, Transformer Engine's do not: the shapes
// show which ones these are.
void take_down_projections(const std::vector<std::vector<FoundChunk>>& found, MegatronModel& model) {
  if (!model.config.multi_latent_attention) return;
  const int tp = model.layout.tensor_model_parallel_size;
  for (layout::ParameterSpec& spec : model.specs) {
    const size_t at = spec.key.rfind("self_attention.");
    if (!is_latent_down_projection(spec.key) || spec.global_shape[0] % tp != 0) continue;
    for (const FoundChunk& chunk : found[0]) {
      const auto tensor = std::find_if(chunk.begin(), chunk.end(), [&](const FoundTensor& each) {
        return each.parsed.rest.ends_with(std::string_view(spec.key).substr(at));
      });
      if (tensor == chunk.end() || tensor->tensor.shape.empty()) continue;
      if (tensor->tensor.shape[0] == static_cast<uint64_t>(spec.global_shape[0] / tp))
        spec.rule = layout::TpRule::kRows;
    }
  }
}

class ChunkMatcher {
 public:
  explicit ChunkMatcher(const MegatronModel& model) : model_(model) {
    for (size_t s = 0; s < model.specs.size(); ++s) spec_of_.emplace(model.specs[s].key, s);
  }

  MegatronChunk match(const MegatronRank& rank, int chunk, FoundChunk found) const {
    const std::vector<std::optional<int64_t>> slots = model_.layers.slots(rank.pp, chunk);
    std::vector<Rows> seen(model_.specs.size());
    MegatronChunk matched;
    const ExpertGrid& grid = model_.experts;
    const int64_t experts_each = model_.config.num_experts / grid.blocks();
    const int64_t first_expert = grid.block_of(rank.tp, rank.ep) * experts_each;
    if (experts_each > 0) split_grouped_experts(rank, experts_each, found);
    for (FoundTensor& tensor : found) {
      MegatronParameter parameter;
      const int64_t layer = layer_in_slot(rank, slots, tensor);
      const std::string key = tensor.parsed.key(layer, first_expert + tensor.parsed.expert);
      auto spec = spec_of_.find(key);
      if (spec == spec_of_.end()) spec = spec_of_.find(key_of_model_with_experts(key));
      if (spec == spec_of_.end() && key == kMegatronOutput) {
        parameter.is_tied_copy = true;
        spec = spec_of_.find(std::string(kEmbedding));
      }
      if (spec == spec_of_.end()) {
        throw Error(ErrorCode::kUnsupported, cat(rank.file->where(), ": tensor ", printable(tensor.name),
                                                 " is not part of the model that its args describe"));
      }
      parameter.spec = spec->second;
      if (key == kEmbedding && !MegatronLayerMap::is_first_chunk(rank.pp, chunk) && model_.config.mtp_num_layers > 0) {
        parameter.is_tied_copy = true;
      }
      check_shape(rank, tensor, model_.specs[spec->second]);
      if (!parameter.is_tied_copy) {
        if (!seen[spec->second].add(tensor.rows)) {
          throw Error(ErrorCode::kCorruptData, cat(rank.file->where(), ": tensor ", printable(tensor.name), " is ", key,
                                                   ", and so is another tensor"));
        }
      }
      parameter.name = std::move(tensor.name);
      parameter.tensor = std::move(tensor.tensor);
      parameter.is_grouped = tensor.is_grouped;
      parameter.in_tensor = tensor.in_tensor;
      parameter.rows = tensor.rows;
      matched.push_back(std::move(parameter));
    }
    check_stage(rank, chunk, seen);
    return matched;
  }

 private:
  // Collects the rows of each block that a parameter's tensors have.
  class Rows {
   public:
    // Returns false if another tensor has the same rows.
    bool add(const RowsOfBlocks& rows) {
      if (firsts_.size() >= kMaxTensors || std::find(firsts_.begin(), firsts_.end(), rows.first) != firsts_.end())
        return false;
      firsts_.push_back(rows.first);
      missing_ += (firsts_.size() == 1 ? rows.each : 0) - rows.count;
      return true;
    }
    bool all() const { return !firsts_.empty() && missing_ == 0; }
    int64_t missing() const { return missing_; }  // rows missing per block, if some were found

   private:
    static constexpr size_t kMaxTensors = 2;
    std::vector<int64_t> firsts_;
    int64_t missing_ = 0;
  };

  // Returns -1 for a tensor outside the layers.
  static int64_t layer_in_slot(const MegatronRank& rank, const std::vector<std::optional<int64_t>>& slots,
                               const FoundTensor& found) {
    const int64_t slot = found.parsed.layer;
    if (slot < 0) return -1;
    const bool is_here = slot < static_cast<int64_t>(slots.size());
    if (is_here && slots[static_cast<size_t>(slot)]) return *slots[static_cast<size_t>(slot)];
    throw Error(ErrorCode::kCorruptData,
                cat(rank.file->where(), ": tensor ", printable(found.name), " exists, but that layer ",
                    is_here ? "is a no-op layer" : "belongs to another stage"));
  }

  void check_shape(const MegatronRank& rank, const FoundTensor& found, const layout::ParameterSpec& spec) const {
    core::Dims wanted = layout::local_shape(spec, model_.padded, model_.cut_of(spec, rank.tp).size);
    if (found.rows.each > 0) wanted[0] = wanted[0] / found.rows.each * found.rows.count;
    const auto same = [](uint64_t seen, int64_t expected) { return seen == static_cast<uint64_t>(expected); };
    if (!std::equal(found.tensor.shape.begin(), found.tensor.shape.end(), wanted.begin(), wanted.end(), same)) {
      throw Error(ErrorCode::kCorruptData, cat(rank.file->where(), ": tensor ", printable(found.name), " has shape ",
                                               found.tensor.shape, ", but by args it should be ", wanted));
    }
    const auto dtype = to_core_dtype(found.tensor.dtype);
    if (dtype != core::DType::kFp32 && dtype != core::DType::kBf16 && dtype != core::DType::kFp16) {
      throw Error(ErrorCode::kUnsupported,
                  cat(rank.file->where(), ": tensor ", printable(found.name), " is ",
                      safetensors_dtype_name(found.tensor.dtype), "; weights may be F32, BF16 or F16"));
    }
  }

  // Checks that the chunk holds all of its parameters, and none of another chunk.
  void check_stage(const MegatronRank& rank, int chunk, const std::vector<Rows>& seen) const {
    for (size_t s = 0; s < seen.size(); ++s) {
      const layout::ParameterSpec& spec = model_.specs[s];
      const bool wanted = model_.chunk_holds(spec, rank.pp, chunk) && model_.rank_holds(spec, rank.tp, rank.ep);
      if (wanted == seen[s].all()) continue;
      if (const int64_t missing = seen[s].missing(); missing > 0) {
        throw Error(ErrorCode::kCorruptData,
                    cat(rank.file->where(), ": of tensor ", spec.key, ", which --mla-mm-split stores in two, ", missing,
                        " rows of each head are missing"));
      }
      throw Error(ErrorCode::kCorruptData, cat(rank.file->where(), ": tensor ", spec.key,
                                               wanted ? " is missing" : " exists, but belongs to another stage"));
    }
  }

  const MegatronModel& model_;
  std::unordered_map<std::string, size_t> spec_of_;
};

}  // namespace

std::vector<uint64_t> stored_shape(const MegatronParameter& parameter) {
  std::vector<uint64_t> shape = parameter.tensor.shape;
  if (!parameter.is_grouped) {
    for (const MegatronParameter& joined : all_in_tensor(parameter)) {
      if (&joined != &parameter) shape[0] += joined.tensor.shape[0];
    }
    return shape;
  }
  const auto experts = static_cast<uint64_t>(parameter.in_tensor);
  const uint64_t outputs = shape[0], inputs = shape[1];
  if (parameter.name.find("experts.weight1") != std::string::npos) return {inputs, experts * outputs};
  return {experts * inputs, outputs};
}

bool MegatronModel::chunk_holds(const layout::ParameterSpec& spec, int pp, int chunk) const {
  if (spec.layer < 0) return MegatronLayerMap::is_first_chunk(pp, chunk);
  if (spec.layer >= config.num_layers) return layers.is_last_chunk(pp, chunk);
  return layers.slot_of(spec.layer).place == layout::Place{pp, chunk};
}

bool MegatronModel::rank_holds(const layout::ParameterSpec& spec, int tp, int ep) const {
  return spec.expert < 0 || spec.expert / (spec.num_experts / experts.blocks()) == experts.block_of(tp, ep);
}

size_t MegatronModel::spec_on_rank(size_t spec, int tp, int ep) const {
  if (specs[spec].expert < 0) return spec;
  constexpr int64_t kSpecsOfExpert = 2;  // layout::parameter_specs lists fc1 and fc2 of each expert
  const int64_t experts_each = specs[spec].num_experts / experts.blocks();
  return spec + static_cast<size_t>(experts.block_of(tp, ep) * experts_each * kSpecsOfExpert);
}

MegatronModel::Cut MegatronModel::cut_of(const layout::ParameterSpec& spec, int tp) const {
  if (spec.expert < 0) return {layout.tensor_model_parallel_size, tp};
  return {experts.cuts(), experts.cut_of(tp)};
}

namespace {

// Reads the model from args of either kind; the vocabulary's padding is not known yet.
void read_args(const MegatronArgs& args, const PipelineExtras& extras, const MegatronOptions& options,
               MegatronModel& model, std::vector<std::string>& decisions) {
  if (!are_converter_args(args)) {
    model.config = megatron_model(args, extras.noop_layers);
    return;
  }
  HfConfig config = read_converter_args(args, extras.noop_layers, options.hf_cfg_dir, decisions);
  model.config = std::move(config.model);
  model.hf_config = std::move(config.original);
}

// Throws kCorruptData if the model cannot be cut into these stages.
void place_layers(const MegatronTree& tree, MegatronModel& model) {
  try {
    model.config.validate();
    layout::ModelLayout matrices = model.layout;
    if (tree.extras.any()) {  // only the map knows how layers are distributed
      matrices.pipeline_model_parallel_size = matrices.virtual_pipeline_model_parallel_size = 1;
    }
    layout::validate_layout(matrices, model.config);
    model.layers = MegatronLayerMap(model.config.num_layers, model.layout, tree.extras);
  } catch (const Error& error) {
    throw Error(ErrorCode::kCorruptData, cat(tree.ranks[0].args->where(), ": args: ", error.what()));
  }
}

}  // namespace

MegatronModel read_megatron_model(const MegatronTree& tree, const MegatronOptions& options,
                                  std::vector<std::string>& decisions) {
  const MegatronArgs& args = *tree.ranks[0].args;
  MegatronModel model;
  read_args(args, tree.extras, options, model, decisions);
  std::vector<std::vector<FoundChunk>> found;
  int64_t skipped = 0;
  for (const MegatronRank& rank : tree.ranks) {
    found.push_back(find_chunks(rank, tree.vpp, skipped));
    if (!model.config.multi_latent_attention) continue;
    for (FoundChunk& chunk : found.back()) {
      if (split_joined_projections(rank, model.config, chunk)) model.has_joined_projections = true;
      name_split_projections(model.config, chunk);
    }
  }

  const int64_t rows = padded_rows(tree, found);
  model.config.vocab_size = true_vocab_size(args, options.true_vocab_size, rows, tree.tp, decisions);
  model.padded = model.config;
  model.padded.make_vocab_size_divisible_by = rows / tree.tp;
  model.layout.tensor_model_parallel_size = tree.tp;
  model.layout.pipeline_model_parallel_size = tree.pp;
  model.layout.virtual_pipeline_model_parallel_size = tree.vpp;
  model.experts = tree.experts;
  if (model.config.has_experts()) {
    model.layout.expert_model_parallel_size = tree.experts.blocks();
    model.layout.expert_tensor_parallel_size = tree.experts.cuts();
    const int expert_ranks = tree.experts.blocks() * tree.experts.cuts();
    model.layout.data_parallel_size = std::lcm(tree.tp, expert_ranks) / tree.tp;
  }
  if (tree.extras.any()) {
    check_layers_with_noops(tree, found, model.config.num_layers);
  } else {
    model.layout.num_layer_list = layer_list(tree, found, model.config.num_layers);
  }
  place_layers(tree, model);
  model.specs = layout::parameter_specs(model.config);
  take_down_projections(found, model);
  for (layout::ParameterSpec& spec : model.specs) {
    if (model.has_joined_projections && spec.key.ends_with("self_attention.linear_q_proj.weight")) {
      spec.rule = layout::TpRule::kReplicated;
    }
  }

  const ChunkMatcher matcher(model);
  for (size_t r = 0; r < tree.ranks.size(); ++r) {
    model.chunks.emplace_back();
    for (int chunk = 0; chunk < tree.vpp; ++chunk) {
      model.chunks[r].push_back(matcher.match(tree.ranks[r], chunk, std::move(found[r][static_cast<size_t>(chunk)])));
    }
  }
  if (skipped > 0) {
    decisions.push_back(cat(skipped, " entries that are not weights are skipped (_extra_state, rotary frequencies)"));
  }
  return model;
}

}  // namespace ms::convert
