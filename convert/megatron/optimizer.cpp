#include "convert/megatron/optimizer.h"

#include <algorithm>
#include <array>
#include <map>

#include "convert/megatron/flat_layout.h"
#include "convert/megatron/master_weights.h"
#include "convert/megatron/optimizer_order.h"
#include "convert/torch/adam_state.h"
#include "convert/torch/torch_types.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

constexpr uint64_t kProofElements = 4096;  // at each end of a parameter

[[noreturn]] void corrupt(const TorchFile& file, const std::string& what) {
  throw Error(ErrorCode::kCorruptData, cat(file.where(), ": optimizer: ", what));
}
[[noreturn]] void unsupported(const TorchFile& file, const std::string& what) {
  throw Error(ErrorCode::kUnsupported, cat(file.where(), ": optimizer: ", what));
}

bool is_fp32(const MegatronParameter& parameter) { return parameter.tensor.dtype == SafetensorsDType::kF32; }

// A parameter, and where its part begins in a tensor of optimizer state.
struct StatePart {
  const MegatronParameter* parameter = nullptr;
  TorchTensor tensor;
  uint64_t first = 0;
};

// Lists the parameters of a tensor of optimizer state, or of its range from `first` on: joined projections one after
// the other, grouped experts as views.
std::vector<StatePart> parts_of(const MegatronParameter& parameter, const TorchTensor& tensor, uint64_t first) {
  std::vector<StatePart> parts;
  if (!parameter.is_grouped) {
    for (const MegatronParameter& joined : all_in_tensor(parameter)) {
      parts.push_back({&joined, tensor, first});
      first += joined.tensor.elements();
    }
    return parts;
  }
  const uint64_t outputs = parameter.tensor.shape[0], inputs = parameter.tensor.shape[1];
  for (const MegatronParameter& expert : all_in_tensor(parameter)) {
    TorchTensor view = tensor;
    view.shape = {outputs, inputs};
    view.stride = {1, outputs};
    view.offset += first + parts.size() * inputs * outputs;
    parts.push_back({&expert, std::move(view), 0});
  }
  return parts;
}

// Reads the state of one rank.
class RankState {
 public:
  RankState(const MegatronModel& model, const MegatronRank& rank, const std::vector<MegatronChunk>& chunks)
      : model_(model), rank_(rank), chunks_(chunks) {
    for (const MegatronChunk& chunk : chunks) {
      for (const MegatronParameter& parameter : chunk) {
        all_fp32_ = all_fp32_ && (is_fp32(parameter) || model.specs[parameter.spec].is_buffer);
      }
    }
  }

  std::vector<MegatronState> by_position(PickleValue inner, std::optional<PickleValue> masters, OptimizerPart part);
  std::vector<MegatronState> by_offset(const TorchFile& file);

 private:
  struct Buffer {
    std::string name;
    PickleValue key, tensors;
  };

  std::vector<MegatronState> in_old_buckets(const TorchFile& file) const;
  void add_buffers(const TorchFile& file, const std::vector<Buffer>& buffers, OptimizerPart kind,
                   std::vector<MegatronState>& states) const;
  TorchTensor state_tensor(const TorchFile& file, PickleValue value, const std::string& name) const;
  bool rounds_to_weights(const MegatronParameter& parameter, const TorchFile& file, const TorchTensor& master,
                         uint64_t first) const;
  bool rounds_to_weight(const TorchFile& file, const StatePart& master) const;
  FlatLayout choose_layout(const MegatronParameters& parameters, const TorchFile& file, const TorchTensor& master,
                           const std::string& name) const;

  const MegatronModel& model_;
  const MegatronRank& rank_;
  const std::vector<MegatronChunk>& chunks_;
  bool all_fp32_ = true;
};

TorchTensor RankState::state_tensor(const TorchFile& file, PickleValue value, const std::string& name) const {
  auto tensor = file.tensor(value);
  if (!tensor) corrupt(file, cat(name, " is not a tensor"));
  const auto dtype = to_core_dtype(tensor->dtype);
  if (dtype != core::DType::kFp32 && dtype != core::DType::kBf16 && dtype != core::DType::kFp16) {
    unsupported(file, cat(name, " is ", safetensors_dtype_name(tensor->dtype), "; expected F32, BF16 or F16"));
  }
  return *tensor;
}

bool RankState::rounds_to_weights(const MegatronParameter& parameter, const TorchFile& file, const TorchTensor& master,
                                  uint64_t first) const {
  const std::vector<StatePart> parts = parts_of(parameter, master, first);
  return std::all_of(parts.begin(), parts.end(), [&](const StatePart& part) { return rounds_to_weight(file, part); });
}

// Compares both ends of the parameter: any other contiguous range would fail.
bool RankState::rounds_to_weight(const TorchFile& file, const StatePart& master) const {
  const MegatronParameter& parameter = *master.parameter;
  const core::DType weight = *to_core_dtype(parameter.tensor.dtype), from = *to_core_dtype(master.tensor.dtype);
  const uint64_t elements = parameter.tensor.elements(), count = std::min(elements, kProofElements);
  const auto bytes_of = [&](core::DType dtype) { return count * static_cast<uint64_t>(core::size_of(dtype)); };
  std::vector<std::byte> wanted(bytes_of(weight)), read(bytes_of(from));
  for (const uint64_t begin : {uint64_t{0}, elements - count}) {
    rank_.file->peek(parameter.tensor, begin, wanted);
    file.peek(master.tensor, master.first + begin, read);
    if (!round_to_weights(read, from, wanted, weight)) return false;
  }
  return true;
}

// inner: {state: {i: {exp_avg, ..}}, param_groups: [{params: [i, ..]}]}. masters: for each group, a list of tensors of
// the parameters that are not fp32.
std::vector<MegatronState> RankState::by_position(PickleValue inner, std::optional<PickleValue> masters,
                                                  OptimizerPart part) {
  const TorchFile& file = *rank_.file;
  const auto state = inner.find("state"), groups = inner.find("param_groups");
  if (!state || !state->is(PickleKind::kDict) || !groups || !groups->is(PickleKind::kList)) {
    corrupt(file, "contains no state and param_groups");
  }
  if (state->pairs().empty()) return {};
  std::map<int64_t, PickleValue> state_of;
  for (const auto& [index, value] : state->pairs()) {
    if (index.is(PickleKind::kInt)) state_of.emplace(index.integer(), value);
  }
  struct Group {
    std::vector<std::array<TorchTensor, 2>> moments;  // one per parameter
    std::vector<std::array<std::string, 2>> names;
    std::vector<TorchTensor> masters;  // of the parameters that are not fp32
  };
  std::vector<Group> stored;
  const std::vector<PickleValue> lists = masters ? masters->items() : std::vector<PickleValue>();
  const std::vector<PickleValue> group_values = groups->items();
  if (masters && lists.size() != group_values.size())
    corrupt(file, "fp32_from_fp16_params and param_groups have different numbers of groups");
  bool decoupled = false;
  for (size_t g = 0; g < group_values.size(); ++g) {
    const auto params = group_values[g].find("params");
    if (!params || !params->is(PickleKind::kList)) corrupt(file, cat("param_groups ", g, " has no list of params"));
    if (const auto flag = group_values[g].find("is_decoupled_lr"); flag && flag->is(PickleKind::kBool)) {
      decoupled = decoupled || flag->boolean();
    }
    Group group;
    for (const PickleValue index : params->items()) {
      const auto found = state_of.find(index.integer());
      if (found == state_of.end()) corrupt(file, cat("no state for parameter ", index.integer()));
      std::array<TorchTensor, 2> moments;
      std::array<std::string, 2> names;
      for (size_t k = 0; k < 2; ++k) {
        names[k] = cat("state[", index.integer(), "].", kMoments[k].key);
        const auto value = found->second.find(kMoments[k].key);
        if (!value)
          unsupported(file,
                      cat("no ", names[k], ": only Adam's state is supported; --no-load-optim skips optimizer state"));
        moments[k] = state_tensor(file, *value, names[k]);
      }
      group.moments.push_back(std::move(moments));
      group.names.push_back(std::move(names));
    }
    if (masters) {
      for (const PickleValue master : lists[g].items()) {
        group.masters.push_back(state_tensor(file, master, cat("fp32_from_fp16_params[", g, "]")));
      }
    }
    if (!group.moments.empty()) stored.push_back(std::move(group));
  }
  // Find the grouping rule and which group is which, by comparing shapes.
  const auto is_of = [](const MegatronParameter& parameter, const TorchTensor& tensor) {
    return tensor.shape == stored_shape(parameter) && (!parameter.is_grouped || tensor.is_dense());
  };
  const auto fits = [&](const Group& group, const MegatronParameters& parameters) {
    size_t master = 0;
    if (group.moments.size() != parameters.size()) return false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const MegatronParameter& parameter = *parameters[i];
      for (const TorchTensor& moment : group.moments[i]) {
        if (!is_of(parameter, moment)) return false;
      }
      if (!masters || is_fp32(parameter)) continue;
      if (master == group.masters.size() || !is_of(parameter, group.masters[master++])) return false;
    }
    return master == group.masters.size();
  };
  for (const bool qk_norms_decay : {false, true}) {
    const std::vector<MegatronParameters> partitions =
        optimizer_groups(model_, chunks_, {.qk_norms_decay = qk_norms_decay, .decoupled_lr = decoupled}, part);
    if (partitions.size() != stored.size()) continue;
    std::vector<const Group*> group_of;
    for (const MegatronParameters& parameters : partitions) {
      for (const Group& group : stored) {
        if (std::find(group_of.begin(), group_of.end(), &group) != group_of.end() || !fits(group, parameters)) continue;
        group_of.push_back(&group);
        break;
      }
    }
    if (group_of.size() != partitions.size()) continue;
    std::vector<MegatronState> states;
    const auto add = [&](const MegatronParameter& parameter, TensorRole role, const TorchTensor& tensor,
                         const std::string& name) {
      for (StatePart& one : parts_of(parameter, tensor, 0)) {
        states.push_back({one.parameter, role, &file, std::move(one.tensor), name, one.first});
      }
    };
    for (size_t g = 0; g < partitions.size(); ++g) {
      size_t master = 0;
      for (size_t i = 0; i < partitions[g].size(); ++i) {
        const MegatronParameter& parameter = *partitions[g][i];
        if (masters && !is_fp32(parameter)) {
          const TorchTensor& tensor = group_of[g]->masters[master++];
          const std::string name = cat("fp32_from_fp16_params of ", parameter.name);
          if (!rounds_to_weights(parameter, file, tensor, 0)) {
            corrupt(file,
                    cat(name, " does not round to the weight: parameters are in another order, or from another step"));
          }
          add(parameter, TensorRole::kMaster, tensor, name);
        } else if (!all_fp32_) {
          for (const MegatronParameter& own : all_in_tensor(parameter)) {
            states.push_back({&own, TensorRole::kMaster, &file, own.tensor, own.name, 0});
          }
        }
        for (size_t k = 0; k < 2; ++k) {
          add(parameter, kMoments[k].role, group_of[g]->moments[i][k], group_of[g]->names[i][k]);
        }
      }
    }
    return states;
  }
  corrupt(file, cat("its ", stored.size(), " groups of ", state_of.size(),
                    " parameters do not have the shapes of the weights in any order that Megatron uses"));
}

FlatLayout RankState::choose_layout(const MegatronParameters& parameters, const TorchFile& file,
                                    const TorchTensor& master, const std::string& name) const {
  const std::vector<FlatParameter> flat = flat_parameters(model_, parameters);
  const MegatronArgs& args = *rank_.args;
  const auto elements = static_cast<int64_t>(master.elements());
  int64_t dp = int64_t{args.size("data_parallel_size")} * args.size("context_parallel_size");
  if (has_expert_optimizer(model_) && model_.specs[parameters[0]->spec].expert >= 0) {
    const ExpertGrid& grid = model_.experts;
    dp = std::max<int64_t>(1, dp * grid.tp / (int64_t{grid.cuts()} * grid.blocks()));
  }
  const auto layouts = possible_flat_layouts(flat, elements, args.integer("ddp_bucket_size").value_or(0), dp);
  std::string evidence;
  const FlatLayout* chosen = nullptr;
  for (const FlatLayout& layout : layouts) {
    size_t fitting = 0;
    while (fitting < parameters.size() &&
           rounds_to_weights(*parameters[fitting], file, master, static_cast<uint64_t>(layout.begin[fitting]))) {
      ++fitting;
    }
    if (fitting < parameters.size()) {
      evidence = cat("; in the last of these ", parameters[fitting]->name, " at element ", layout.begin[fitting],
                     " does not round to the weight");
    } else if (chosen != nullptr) {
      corrupt(file, cat(name, ": more than one layout of the buffer fits the weights"));
    } else {
      chosen = &layout;
    }
  }
  if (chosen == nullptr) {
    corrupt(file, cat(name, " of ", elements, " elements does not hold the weights of ", rank_.file->where(), ": ",
                      layouts.size(), " of Megatron's layouts have its length", evidence));
  }
  return *chosen;
}

std::vector<MegatronState> RankState::by_offset(const TorchFile& file) {
  // A dictionary, or a list of them for chained optimizers; each has one entry per buffer of a chunk.
  std::vector<PickleValue> parts = {file.root()};
  if (file.root().is(PickleKind::kList)) parts = file.root().items();
  if (parts.size() == 1 && parts[0].is(PickleKind::kDict) && !parts[0].find("buckets_coalesced")) {
    return in_old_buckets(file);
  }
  std::vector<MegatronState> states;
  const bool split = parts.size() > 1;
  if (split != has_expert_optimizer(model_) || parts.size() > 2) {
    corrupt(file, cat("holds the state of ", parts.size(), " optimizers, but the model has ",
                      has_expert_optimizer(model_) ? 2 : 1));
  }
  for (size_t p = 0; p < parts.size(); ++p) {
    const PickleValue part = parts[p];
    if (part.is(PickleKind::kNone)) continue;  // another data-parallel rank's
    const OptimizerPart kind = !split ? OptimizerPart::kAll : p == 0 ? OptimizerPart::kDense : OptimizerPart::kExperts;
    if (!part.is(PickleKind::kDict)) corrupt(file, "not a dictionary of buffers");
    const auto coalesced = part.find("buckets_coalesced");
    if (!coalesced || !coalesced->is(PickleKind::kBool) || !coalesced->boolean()) {
      unsupported(file, "buckets_coalesced is not True");
    }
    std::vector<Buffer> buffers;
    for (int64_t index = 0;; ++index) {
      std::optional<PickleValue> entry;
      for (const auto& [key, value] : part.pairs()) {
        if (key.is(PickleKind::kInt) && key.integer() == index) entry = value;
      }
      if (!entry) break;
      if (!entry->is(PickleKind::kDict) || entry->pairs().size() != 1)
        corrupt(file, cat("buffer ", index, " has more than one type"));
      const auto [key, tensors] = entry->pairs()[0];
      buffers.push_back({cat("buffer ", buffers.size(), split && p == 1 ? " of experts" : ""), key, tensors});
    }
    add_buffers(file, buffers, kind, states);
  }
  return states;
}

// The format before February 2024: for each chunk {torch.float32: {"param": tensors, ..}} with one tensor per bucket
// or, before there were buckets, one for all. Parameters are stored without gaps, followed by padding to a multiple of
// the data-parallel size.
// Sources: megatron/optimizer/distrib_optimizer.py (save_parameter_state) and megatron/core/distributed/grad_buffer.py
// of megatron-core 0.3 to 0.5.
std::vector<MegatronState> RankState::in_old_buckets(const TorchFile& file) const {
  if (has_expert_optimizer(model_)) unsupported(file, "a format from before 2024, with experts: not supported");
  const auto chunks = file.root().pairs();
  if (chunks.size() != chunks_.size()) {
    corrupt(file, cat("holds the state of ", chunks.size(), " chunks, but the model has ", chunks_.size()));
  }
  const int64_t dp = int64_t{rank_.args->size("data_parallel_size")} * rank_.args->size("context_parallel_size");
  std::vector<MegatronState> states;
  for (size_t c = 0; c < chunks_.size(); ++c) {
    const auto& [index, of_types] = chunks[c];
    const auto buffers = optimizer_buffers(model_, chunks_[c], OptimizerPart::kAll);
    if (!index.is(PickleKind::kInt) || index.integer() != static_cast<int64_t>(c) || !of_types.is(PickleKind::kDict) ||
        of_types.pairs().size() != 1 || buffers.size() != 1) {
      unsupported(file, cat("chunk ", c, " does not have exactly one buffer with weights of one type"));
    }
    std::array<std::vector<TorchTensor>, 3> tensors;
    for (size_t k = 0; k < tensors.size(); ++k) {
      const std::string name = cat("chunk ", c, " ", kOptimizerKinds[k].key);
      const auto value = of_types.pairs()[0].second.find(kOptimizerKinds[k].key);
      if (!value) unsupported(file, cat("no ", name, ": only Adam's state is supported"));
      for (const PickleValue bucket : value->is(PickleKind::kList) ? value->items() : std::vector{*value}) {
        tensors[k].push_back(state_tensor(file, bucket, name));
        if (tensors[k].back().shape.size() != 1 || !tensors[k].back().is_dense())
          corrupt(file, cat(name, " is not flat"));
      }
    }
    std::vector<int64_t> lengths;
    for (size_t b = 0; b < tensors[0].size(); ++b) {
      lengths.push_back(static_cast<int64_t>(tensors[0][b].elements()));
      for (const auto& kind : tensors) {
        if (kind.size() != tensors[0].size() || kind[b].shape != tensors[0][b].shape) {
          corrupt(file, cat("chunk ", c, ": moments and param have different buckets"));
        }
      }
    }
    std::vector<FlatParameter> flat = flat_parameters(model_, buffers[0]);
    // A shared embedding has no bucket of its own in this format.
    for (FlatParameter& parameter : flat) parameter.is_shared_embedding = false;
    const auto places = places_in_buckets(flat, lengths, false, dp - 1);
    if (!places) corrupt(file, cat("chunk ", c, ": buckets ", lengths, " do not fit the weights"));
    for (size_t p = 0; p < flat.size(); ++p) {
      const MegatronParameter& parameter = *buffers[0][p];
      const BucketPlace place = (*places)[p];
      const auto begin = static_cast<uint64_t>(place.begin);
      if (!rounds_to_weights(parameter, file, tensors[0][place.bucket], begin)) {
        corrupt(file, cat("chunk ", c, ": element ", begin, " of bucket ", place.bucket, " should be where ",
                          parameter.name, " begins, but the value there does not round to the weight"));
      }
      for (size_t k = all_fp32_ ? 1 : 0; k < tensors.size(); ++k) {
        for (StatePart& one : parts_of(parameter, tensors[k][place.bucket], begin)) {
          states.push_back({one.parameter, kOptimizerKinds[k].role, &file, std::move(one.tensor),
                            cat("chunk ", c, " ", kOptimizerKinds[k].key, " of ", one.parameter->name), one.first});
        }
      }
    }
  }
  return states;
}

void RankState::add_buffers(const TorchFile& file, const std::vector<Buffer>& buffers, OptimizerPart kind,
                            std::vector<MegatronState>& states) const {
  size_t next = 0;
  for (const MegatronChunk& chunk : chunks_) {
    for (const MegatronParameters& parameters : optimizer_buffers(model_, chunk, kind)) {
      const SafetensorsDType type = parameters[0]->tensor.dtype;
      if (next == buffers.size()) corrupt(file, cat("holds ", buffers.size(), " buffers, fewer than the weights need"));
      const Buffer& buffer = buffers[next++];
      const auto said = buffer.key.is(PickleKind::kTuple) && !buffer.key.items().empty()
                            ? parse_torch_dtype(buffer.key.items()[0])
                            : std::nullopt;
      if (said != type) {
        corrupt(file, cat(buffer.name, " does not have weights of type ", safetensors_dtype_name(type)));
      }
      std::array<TorchTensor, 3> tensors;
      std::array<std::string, 3> names;
      for (size_t k = 0; k < 3; ++k) {
        names[k] = cat(buffer.name, " ", kOptimizerKinds[k].key);
        const auto value = buffer.tensors.find(kOptimizerKinds[k].key);
        if (!value) unsupported(file, cat("no ", names[k], ": only Adam's state is supported"));
        tensors[k] = state_tensor(file, *value, names[k]);
        if (tensors[k].shape.size() != 1 || !tensors[k].is_dense())
          corrupt(file, cat(names[k], " is not a flat buffer"));
        if (tensors[k].shape != tensors[0].shape) {
          corrupt(file, cat(names[k], " has shape ", tensors[k].shape, ", but ", names[0], " has ", tensors[0].shape));
        }
      }
      const FlatLayout layout = choose_layout(parameters, file, tensors[0], names[0]);
      for (size_t i = 0; i < parameters.size(); ++i) {
        for (size_t k = all_fp32_ ? 1 : 0; k < 3; ++k) {
          for (StatePart& one : parts_of(*parameters[i], tensors[k], static_cast<uint64_t>(layout.begin[i]))) {
            states.push_back({one.parameter, kOptimizerKinds[k].role, &file, std::move(one.tensor),
                              cat(names[k], " of ", one.parameter->name), one.first});
          }
        }
      }
    }
  }
  if (next != buffers.size()) corrupt(file, cat("holds ", buffers.size(), " buffers, but the weights need ", next));
}

// Reads the step of the first parameter.
std::optional<int64_t> find_step(const TorchFile& file, PickleValue inner) {
  const auto state = inner.find("state");
  if (state && state->is(PickleKind::kDict)) {
    for (const auto& [index, value] : state->pairs()) {
      if (const auto step = value.find("step")) return read_count(file, *step);
    }
  }
  return std::nullopt;
}

}  // namespace

MegatronOptimizer read_megatron_optimizer(const MegatronTree& tree, const MegatronModel& model,
                                          std::vector<std::string>& decisions) {
  MegatronOptimizer optimizer;
  const auto stored = [](const MegatronRank& rank) {
    return !rank.distributed_optimizer.empty() || rank.find("optimizer");
  };
  for (const MegatronRank& rank : tree.ranks) {
    if (stored(rank) == stored(tree.ranks[0]) &&
        rank.distributed_optimizer.empty() == tree.ranks[0].distributed_optimizer.empty()) {
      continue;
    }
    throw Error(ErrorCode::kCorruptData,
                cat(rank.file->where(), ": its optimizer state is stored differently from that of ",
                    tree.ranks[0].file->where(), "; distrib_optim.pt may be missing"));
  }
  if (!stored(tree.ranks[0])) return optimizer;
  for (size_t r = 0; r < tree.ranks.size(); ++r) {
    const MegatronRank& rank = tree.ranks[r];
    std::optional<PickleValue> value = rank.find("optimizer");
    if (!value) corrupt(*rank.file, "distrib_optim.pt exists next to it, but is empty");
    std::vector<PickleValue> parts = {*value};  // several for chained optimizers
    if (value->is(PickleKind::kList) && !value->items().empty()) parts = value->items();
    const PickleValue inner = parts[0].find("optimizer").value_or(parts[0]);
    if (!optimizer.step) optimizer.step = find_step(*rank.file, inner);
    RankState state(model, rank, model.chunks[r]);
    if (!rank.distributed_optimizer.empty()) {
      optimizer.files.push_back(std::make_unique<TorchFile>(rank.distributed_optimizer));
      optimizer.states.push_back(state.by_offset(*optimizer.files.back()));
      continue;
    }
    if (rank.args->flag("use_distributed_optimizer")) {
      corrupt(*rank.file, "args.use_distributed_optimizer is True, but distrib_optim.pt is missing in the same folder");
    }
    if (parts.size() != (has_expert_optimizer(model) ? 2 : 1)) {
      corrupt(*rank.file, cat("holds the state of ", parts.size(), " optimizers, but the model has ",
                              has_expert_optimizer(model) ? 2 : 1));
    }
    optimizer.states.emplace_back();
    for (size_t p = 0; p < parts.size(); ++p) {
      const OptimizerPart kind = parts.size() == 1 ? OptimizerPart::kAll
                                 : p == 0          ? OptimizerPart::kDense
                                                   : OptimizerPart::kExperts;
      for (MegatronState& each : state.by_position(parts[p].find("optimizer").value_or(parts[p]),
                                                   parts[p].find("fp32_from_fp16_params"), kind)) {
        optimizer.states.back().push_back(std::move(each));
      }
    }
  }
  const bool stepped =
      std::any_of(optimizer.states.begin(), optimizer.states.end(), [](const auto& states) { return !states.empty(); });
  const auto iteration = tree.ranks[0].find("iteration");
  if (!stepped && iteration && iteration->is(PickleKind::kInt) && iteration->integer() > 0) {
    corrupt(*tree.ranks[0].file, cat("its state is empty, but the run is at iteration ", iteration->integer(),
                                     ": the moments are lost, or every step so far was skipped. Give --drop-optimizer "
                                     "to convert the weights alone"));
  }
  if (!stepped) {
    decisions.push_back("the optimizer has taken no step, so it has no state");
    optimizer.states.clear();
  }
  return optimizer;
}

}  // namespace ms::convert
