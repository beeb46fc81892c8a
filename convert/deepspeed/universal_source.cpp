#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "convert/deepspeed.h"
#include "convert/deepspeed/files.h"
#include "convert/deepspeed/model_states.h"
#include "convert/detail/printable.h"
#include "convert/torch/adam_state.h"
#include "core/error.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

// Returns a file's tensor: {"param": tensor, ..} or, with ZeRO 3, the bare tensor.
PickleValue held_by(const TorchFile& file) {
  const PickleValue root = file.root();
  if (!root.is(PickleKind::kDict)) return root;
  if (const auto expert = root.find("is_expert_param"); expert && expert->is(PickleKind::kBool) && expert->boolean()) {
    throw Error(ErrorCode::kUnsupported, cat(file.where(), ": weights of experts are not supported"));
  }
  return deepspeed_member(file, root, "param");
}

class UniversalCheckpoint {
 public:
  UniversalCheckpoint(const std::string& path, const HfNamedOptions& options, std::vector<std::string>& decisions)
      : model_(find_universal_files(deepspeed_folder(path, kUniversalLatest)),
               config_unless_named(path, options, "a universal checkpoint"), decisions),
        zero_(model_.files().folder / kUniversalZero) {
    if (model_.files().folder.string() != path) {
      model_.say(cat(kUniversalLatest, " names ", model_.files().folder.filename().string()));
    }
    if (options.drop_optimizer) model_.say("optimizer state is left out");
    if (!options.drop_optimizer || !model_.has_weights()) read_tensors(!options.drop_optimizer, options.for_proof);
  }

  std::unique_ptr<ckpt::Source> source() && { return std::move(model_).source(); }

 private:
  void read_tensors(bool with_moments, bool for_proof);
  void read_settings(std::optional<int64_t> step);
  void add(const std::string& folder, const char* file, std::optional<core::TensorRole> role);

  DeepSpeedModel model_;
  fs::path zero_;
  std::map<std::string, const DeepSpeedModel::Weight*> trained_;  // by name
};

void UniversalCheckpoint::read_tensors(bool with_moments, bool for_proof) {
  for (const auto& group : model_.trained()) {
    for (const DeepSpeedModel::Weight& weight : group) trained_.emplace(weight.name, &weight);
  }
  std::vector<std::string> folders;
  std::error_code error;
  for (fs::directory_iterator entry(zero_, error), end; !error && entry != end; entry.increment(error)) {
    if (fs::exists(entry->path() / "fp32.pt")) folders.push_back(entry->path().filename().string());
  }
  std::sort(folders.begin(), folders.end());
  if (folders.empty()) {
    throw Error(ErrorCode::kCorruptData, cat(zero_.string(), ": contains no folder of a weight with its fp32.pt"));
  }
  const auto has_moment = [&](const std::string& folder) { return fs::exists(zero_ / folder / "exp_avg.pt"); };
  if (with_moments && std::none_of(folders.begin(), folders.end(), has_moment)) {
    model_.say("there is no optimizer state");
    with_moments = false;
  }
  for (const std::string& folder : folders) {
    add(folder, "fp32.pt", std::nullopt);
    if (!with_moments || !has_moment(folder)) continue;
    for (const DeepSpeedMoment& moment : kDeepSpeedMoments) add(folder, cat(moment.name, ".pt").c_str(), moment.role);
  }
  if (!with_moments) {
    if (!for_proof) model_.drop(core::TensorRole::kMaster);
    return;
  }
  for (const DeepSpeedMoment& moment : kDeepSpeedMoments) model_.require_all(moment.role);
  const auto stepped = [&](const std::string& folder) { return fs::exists(zero_ / folder / "step.pt"); };
  std::optional<int64_t> step;
  if (const auto found = std::find_if(folders.begin(), folders.end(), stepped); found != folders.end()) {
    const TorchFile file((zero_ / *found / "step.pt").string());
    step = read_count(file, file.root());
  }
  read_settings(step);
}

// role: nullopt for the fp32 weight.
void UniversalCheckpoint::add(const std::string& folder, const char* name, std::optional<core::TensorRole> role) {
  const TorchFile file((zero_ / folder / name).string());
  const auto tensor = file.tensor(held_by(file));
  if (!tensor) throw Error(ErrorCode::kCorruptData, cat(file.where(), ": contains no tensor"));
  DeepSpeedModel::Weight weight{model_.name_of(folder), tensor->shape, tensor->elements()};
  const auto known = trained_.find(weight.name);  // a bare tensor is flat
  if (known != trained_.end() && tensor->shape.size() == 1 && known->second->elements == weight.elements) {
    weight.shape = known->second->shape;
  }
  TorchPieces& pieces = model_.pieces();
  std::vector<TorchPieces::Run> runs = {{pieces.add_view(pieces.add_file(file.where()), *tensor), 0, weight.elements}};
  if (role) {
    model_.add(*role, weight, std::move(runs));
  } else {
    model_.add_fp32(weight, std::move(runs));
  }
}

// step: of the weights, if they have one.
void UniversalCheckpoint::read_settings(std::optional<int64_t> step) {
  const fs::path path = zero_ / "optimizer_state.pt";
  if (step) model_.info().common["step"] = *step;
  if (!fs::exists(path)) return;
  const TorchFile file(path.string());
  const auto inner = file.root().find("optimizer_state_dict");  // ZeRO 3
  const auto state = inner ? inner->find("state") : std::nullopt;
  if (!step && state && state->is(PickleKind::kDict) && !state->pairs().empty()) {
    if (const auto counter = state->pairs()[0].second.find("step")) step = read_count(file, *counter);
  }
  auto groups = file.root().find("param_groups");
  if (!groups && inner) groups = inner->find("param_groups");
  if (groups && groups->is(PickleKind::kList)) model_.add_groups(file, *groups, step);
  if (step) model_.info().common["step"] = *step;
}

}  // namespace

std::string universal_sign(const std::string& folder) {
  if (fs::exists(fs::path(folder) / kUniversalLatest)) return kUniversalLatest;
  const std::string states = first_model_states(folder);
  return !states.empty() && fs::is_directory(fs::path(folder) / kUniversalZero) ? cat(kUniversalZero, "/ and ", states)
                                                                                : "";
}

std::unique_ptr<ckpt::Source> open_universal(const std::string& path, const HfNamedOptions& options,
                                             std::vector<std::string>& decisions) {
  return UniversalCheckpoint(path, options, decisions).source();
}

}  // namespace ms::convert
