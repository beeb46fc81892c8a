#include "convert/deepspeed/model_states.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "ckpt/execute.h"
#include "convert/detail/printable.h"
#include "convert/hf_named.h"
#include "convert/name_map.h"
#include "convert/named_source.h"
#include "convert/optimizer_groups.h"
#include "convert/torch/adam_state.h"
#include "convert/torch/plain_value.h"
#include "convert/torch/torch_types.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;
using detail::printable;

constexpr uint64_t kProofElements = 64;  // at each end of a weight
// Entries of the model states that are read, or that repeat what other files contain.
constexpr std::string_view kKnown[] = {"module",
                                       "buffer_names",
                                       "param_shapes",
                                       "frozen_param_shapes",
                                       "frozen_param_fragments",
                                       "shared_params",
                                       "skipped_steps",
                                       "global_steps",
                                       "global_samples",
                                       "dp_world_size",
                                       "mp_world_size",
                                       "ds_config",
                                       "ds_version",
                                       "optimizer",
                                       "lr_scheduler",
                                       "checkpoint_parallel_dimensions",
                                       "universal_checkpoint_info"};

bool is_dict(PickleValue value) {
  return value.is(PickleKind::kDict) || value.is_call_of("collections", "OrderedDict");
}

template <class... Parts>
Error corrupt(const std::string& where, const Parts&... parts) {
  return Error(ErrorCode::kCorruptData, cat(where, ": ", parts...));
}

}  // namespace

PickleValue deepspeed_member(const TorchFile& file, PickleValue dict, std::string_view key) {
  const auto found = dict.find(key);
  if (!found) throw corrupt(file.where(), "no ", key, " in it, so it is not a DeepSpeed checkpoint");
  return *found;
}

DeepSpeedModel::DeepSpeedModel(DeepSpeedFiles files, std::optional<HfConfig> config,
                               std::vector<std::string>& decisions)
    : files_(std::move(files)),
      where_(files_.folder.string()),
      config_(std::move(config)),
      decisions_(decisions),
      pieces_(std::make_unique<TorchPieces>(where_)) {
  read(TorchFile(files_.model_states[0]));
}

std::string DeepSpeedModel::name_of(std::string_view key) const {
  std::string name = without_wrappers(key);
  return name.starts_with(prefix_) ? name.substr(prefix_.size()) : name;
}

void DeepSpeedModel::read(const TorchFile& file) {
  const PickleValue module = deepspeed_member(file, file.root(), "module");
  if (!is_dict(module)) throw corrupt(file.where(), "its module is not a dictionary of weights");
  const auto shapes = file.root().find("param_shapes");
  std::vector<std::string> names;
  for (const auto& [key, value] : module.pairs()) names.push_back(without_wrappers(key.text()));
  if (names.empty() && shapes && shapes->is(PickleKind::kList)) {
    for (const PickleValue group : shapes->items()) {
      for (const auto& [key, value] : group.pairs()) names.push_back(without_wrappers(key.text()));
    }
  }
  if (config_) prefix_ = prefix_of_family(names, *config_->family, file.where());
  if (const auto shared = file.root().find("shared_params")) {
    for (const auto& [key, value] : shared->pairs()) shared_.emplace_back(name_of(key.text()), name_of(value.text()));
  }
  read_shapes(file);
  has_weights_ = !files_.by_rank && !files_.several_model_ranks && !module.pairs().empty();
  if (files_.by_rank && !files_.universal) read_frozen();
  if (has_weights_) read_module(file, module);
  if (const auto steps = file.root().find("global_steps")) info_.iteration = read_count(file, *steps).value_or(0);
  if (const auto samples = file.root().find("global_samples")) {
    info_.common["consumed_train_samples"] = read_count(file, *samples).value_or(0);
  }
  read_scheduler(file);
  has_other_optimizer_ = file.root().find("optimizer").has_value();
  std::string skipped;
  for (const auto& [key, value] : file.root().pairs()) {
    if (value.is(PickleKind::kNone) || !key.is(PickleKind::kString)) continue;
    if (std::find(std::begin(kKnown), std::end(kKnown), key.text()) != std::end(kKnown)) continue;
    skipped += cat(skipped.empty() ? "" : ", ", printable(key.text()));
  }
  if (!skipped.empty()) say(cat("not copied from the model states: ", skipped));
}

std::vector<DeepSpeedModel::Weight> DeepSpeedModel::named_shapes(PickleValue dict, const std::string& where) const {
  std::vector<Weight> weights;
  for (const auto& [key, value] : dict.pairs()) {
    Weight weight{name_of(key.text()), parse_torch_size(value, where), 1};
    for (const uint64_t length : weight.shape) {
      if (__builtin_mul_overflow(weight.elements, length, &weight.elements) || weight.elements > uint64_t{1} << 60) {
        throw corrupt(where, printable(weight.name), " has too many elements to count");
      }
    }
    weights.push_back(std::move(weight));
  }
  return weights;
}

void DeepSpeedModel::read_shapes(const TorchFile& file) {
  const auto shapes = file.root().find("param_shapes");
  if (!shapes) {
    if (files_.by_rank && !files_.universal) throw corrupt(file.where(), "contains no param_shapes");
    return;
  }
  if (is_dict(*shapes)) {
    trained_.push_back(named_shapes(*shapes, file.where()));
    return;
  }
  for (const PickleValue group : shapes->items()) trained_.push_back(named_shapes(group, file.where()));
}

// ZeRO 3 partitions each frozen weight, equally on every rank.
void DeepSpeedModel::read_frozen() {
  std::vector<Weight> frozen;
  std::vector<std::vector<TorchPieces::Run>> runs;
  for (size_t rank = 0; rank < files_.model_states.size(); ++rank) {
    const TorchFile file(files_.model_states[rank]);
    if (rank == 0) {
      const auto shapes = file.root().find("frozen_param_shapes");
      if (shapes) frozen = named_shapes(*shapes, file.where());
      if (frozen.empty()) return;
      runs.resize(frozen.size());
    }
    std::map<std::string, PickleValue> of_name;
    for (const auto& [key, value] : deepspeed_member(file, file.root(), "frozen_param_fragments").pairs()) {
      of_name.emplace(name_of(key.text()), value);
    }
    const uint32_t opened = pieces_->add_file(file.where());
    for (size_t i = 0; i < frozen.size(); ++i) {
      const uint64_t elements = frozen[i].elements, ranks = files_.model_states.size();
      const uint64_t piece = (elements + ranks - 1) / ranks, begin = std::min(elements, rank * piece);
      const auto found = of_name.find(frozen[i].name);
      const auto tensor = found == of_name.end() ? std::nullopt : file.tensor(found->second);
      if (!tensor) {
        throw corrupt(file.where(), "frozen_param_fragments has no tensor ", printable(frozen[i].name));
      }
      runs[i].push_back({pieces_->add_view(opened, *tensor), 0, std::min(piece, elements - begin)});
    }
  }
  for (size_t i = 0; i < frozen.size(); ++i) add(TensorRole::kParam, frozen[i], std::move(runs[i]));
}

void DeepSpeedModel::read_module(const TorchFile& file, PickleValue module) {
  const uint32_t opened = pieces_->add_file(file.where());
  for (const auto& [key, value] : module.pairs()) {
    const auto tensor = file.tensor(value);
    if (!tensor) throw corrupt(file.where(), "its module has ", printable(key.text()), ", which is not a tensor");
    const uint64_t elements = tensor->elements();
    add(TensorRole::kParam, {name_of(key.text()), tensor->shape, elements},
        {{pieces_->add_view(opened, *tensor), 0, elements}});
  }
}

// {"state": what the scheduler saved, "type" and "params": from ds_config}.
void DeepSpeedModel::read_scheduler(const TorchFile& file) {
  nlohmann::json scheduler = nlohmann::json::object();
  if (const auto state = file.root().find("lr_scheduler"); state && !state->is(PickleKind::kNone)) {
    if (auto plain = plain_value(*state)) {
      scheduler["state"] = std::move(*plain);
    } else {
      say("lr_scheduler is not copied: it contains more than numbers, strings and lists");
    }
  }
  const auto config = file.root().find("ds_config");
  const auto stated = config ? config->find("scheduler") : std::nullopt;
  if (const auto plain = stated ? plain_value(*stated) : std::nullopt; plain && plain->is_object()) {
    scheduler.update(*plain);
  }
  if (!scheduler.empty()) info_.common["lr_scheduler"] = std::move(scheduler);
}

void DeepSpeedModel::add_groups(const TorchFile& file, PickleValue groups, std::optional<int64_t> step) {
  std::vector<NamedGroup> found;
  for (const PickleValue group : groups.items()) {
    NamedGroup& one = found.emplace_back();
    one.settings = read_adam_group(&file, group);
    if (!one.settings.step) one.settings.step = step;
    const auto params = group.find("params");
    if (!params || !params->is(PickleKind::kList)) continue;
    for (const PickleValue index : params->items()) {
      if (!index.is(PickleKind::kInt) || index.integer() < 0 ||
          index.integer() >= static_cast<int64_t>(trained_.size())) {
        throw corrupt(file.where(), "param_groups have a group that param_shapes lack");
      }
      for (const Weight& weight : trained_[static_cast<size_t>(index.integer())]) one.names.push_back(weight.name);
    }
  }
  const bool unnamed = std::all_of(found.begin(), found.end(), [](const NamedGroup& one) { return one.names.empty(); });
  if (!found.empty() && unnamed) {  // settings that hold for all groups
    for (const auto& group : trained_) {
      for (const Weight& weight : group) found[0].names.push_back(weight.name);
    }
  }
  if (config_) add_named_groups(found, *config_->family, config_->model, file.where(), info_.common);
}

void DeepSpeedModel::add(TensorRole role, const Weight& weight, std::vector<TorchPieces::Run> runs) {
  const std::string text = role == TensorRole::kParam ? weight.name : cat(core::role_name(role), " of ", weight.name);
  const size_t index = pieces_->add_tensor(text, weight.shape, std::move(runs));
  tables_[role].emplace(weight.name, NamedTensors::Place{0, index});
}

void DeepSpeedModel::add_fp32(const Weight& weight, std::vector<TorchPieces::Run> runs) {
  if (!has_weights_) return add(TensorRole::kParam, weight, std::move(runs));
  const auto stored = tables_.at(TensorRole::kParam).find(weight.name);
  if (stored == tables_.at(TensorRole::kParam).end()) {
    throw corrupt(where_, "the model states have no ", printable(weight.name), ", but its fp32 weight exists");
  }
  add(TensorRole::kMaster, weight, std::move(runs));
  if (rounds_to_weight(weight, tables_.at(TensorRole::kMaster).at(weight.name).index, stored->second.index)) return;
  throw corrupt(where_, printable(weight.name),
                " of the model differs from its rounded fp32 values: they are from another step, or in another order "
                "than in param_shapes");
}

bool DeepSpeedModel::rounds_to_weight(const Weight& weight, size_t fp32, size_t stored) const {
  const TensorFile::Tensor tensor = (*pieces_)[stored];
  if (!std::equal(tensor.shape.begin(), tensor.shape.end(), weight.shape.begin(), weight.shape.end())) return false;
  const auto dtype = to_core_dtype(tensor.dtype);
  const auto from = to_core_dtype((*pieces_)[fp32].dtype);
  const bool computable = dtype == core::DType::kFp32 || dtype == core::DType::kBf16 || dtype == core::DType::kFp16;
  if (!computable || from != core::DType::kFp32) return from == core::DType::kFp32;  // refused elsewhere
  const uint64_t count = std::min(weight.elements, kProofElements);
  std::vector<std::byte> wanted(count * static_cast<uint64_t>(core::size_of(*dtype))), seen(wanted.size());
  std::vector<std::byte> read(count * sizeof(float));
  for (const uint64_t first : {uint64_t{0}, weight.elements - count}) {
    pieces_->peek(stored, first, wanted);
    pieces_->peek(fp32, first, read);
    ckpt::convert_elements(read.data(), core::DType::kFp32, seen.data(), *dtype, static_cast<int64_t>(count));
    if (std::memcmp(seen.data(), wanted.data(), seen.size()) != 0) return false;
  }
  return true;
}

void DeepSpeedModel::require_all(TensorRole role) const {
  const auto table = tables_.find(role);
  std::vector<std::string> without;
  for (const auto& [name, place] : tables_.at(TensorRole::kParam)) {
    const bool alias =
        std::any_of(shared_.begin(), shared_.end(), [&, &name = name](const auto& pair) { return pair.first == name; });
    if (alias || is_ignored_buffer(name)) continue;
    if (table == tables_.end() || !table->second.contains(name)) without.push_back(name);
  }
  if (without.empty()) return;
  throw Error(ErrorCode::kUnsupported,
              cat(where_, ": no ", core::role_name(role), " of ", printable(without[0]),
                  without.size() > 1 ? cat(" and ", without.size() - 1, " more") : "",
                  ": it was probably frozen in training; give --drop-optimizer to convert the weights alone"));
}

std::unique_ptr<ckpt::Source> DeepSpeedModel::source() && {
  // The masters of fp32 weights are the weights themselves.
  if (const auto masters = tables_.find(TensorRole::kMaster); masters != tables_.end()) {
    const auto is_fp32 = [&](const auto& entry) {
      return (*pieces_)[entry.second.index].dtype == SafetensorsDType::kF32;
    };
    const auto& weights = tables_.at(TensorRole::kParam);
    if (std::all_of(weights.begin(), weights.end(), is_fp32)) tables_.erase(masters);
  }
  NamedTensors tensors;
  tensors.where = where_;
  tensors.files.push_back(std::move(pieces_));
  const bool tied = config_ && !config_->model.untie_embeddings_and_output_weights;
  for (auto& [role, table] : tables_) {
    for (const auto& [alias, original] : shared_) {
      const auto found = table.find(original);
      if (found != table.end() && !(tied && alias == output_name(*config_->family)))
        table.emplace(alias, NamedTensors::Place(found->second));
    }
    tensors.tables.emplace(role, std::move(table));
  }
  if (!config_) return make_named_source(whole_shards(std::move(tensors)), std::move(info_));
  return make_mapped_source(std::move(tensors), *config_, std::move(info_));
}

}  // namespace ms::convert
