#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

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

constexpr size_t kNumMoments = std::size(kDeepSpeedMoments);

// A range of a rank's group.
struct Part {
  size_t rank = 0, group = 0;
  uint64_t first = 0, count = 0;
};

// Consecutive groups of ranks: with ZeRO 1 and 2 one group over all ranks, with ZeRO 3 all groups of one rank.
class Line {
 public:
  void append(size_t rank, size_t group, uint64_t elements) {
    parts_.push_back({rank, group, elements_, elements});
    elements_ += elements;
  }
  uint64_t elements() const { return elements_; }
  // Appends to `out` the parts that contain [begin, begin + count), which must be inside the line.
  void cut(uint64_t begin, uint64_t count, std::vector<Part>& out) const {
    for (const Part& part : parts_) {  // first: where the part begins in the line
      const uint64_t from = std::max(begin, part.first), to = std::min(begin + count, part.first + part.count);
      if (from < to) out.push_back({part.rank, part.group, from - part.first, to - from});
    }
  }

 private:
  std::vector<Part> parts_;
  uint64_t elements_ = 0;
};

// Assigns positions to weights that are flattened one after the other.
class Walk {
 public:
  Walk(const std::string& where, uint64_t elements) : where_(where), elements_(elements) {}
  uint64_t at() const { return at_; }
  // Returns where the next weight begins; it has `count` elements and is followed by a gap.
  uint64_t next(const DeepSpeedModel::Weight& weight, uint64_t count, uint64_t gap) {
    const uint64_t begin = at_;
    if (count > elements_ - at_) {
      throw Error(ErrorCode::kCorruptData,
                  cat(where_, ": by param_shapes ", printable(weight.name), " ends at element ", at_ + count,
                      " of partitions that hold ", elements_));
    }
    at_ += count;
    at_ += std::min(gap, elements_ - at_);
    return begin;
  }

 private:
  const std::string& where_;
  uint64_t elements_, at_ = 0;
};

class ZeroCheckpoint {
 public:
  ZeroCheckpoint(const std::string& path, const HfNamedOptions& options, std::vector<std::string>& decisions)
      : model_(find_deepspeed_files(deepspeed_folder(path, kDeepSpeedLatest)),
               config_unless_named(path, options, "a DeepSpeed checkpoint"), decisions),
        drop_optimizer_(options.drop_optimizer) {
    const DeepSpeedFiles& files = model_.files();
    if (files.folder.string() != path) model_.say(cat("latest names ", files.folder.filename().string()));
    if (files.by_rank || !drop_optimizer_) read_optimizer_states();
    if (drop_optimizer_ && !files.optim_states.empty()) model_.say("optimizer state is left out");
  }

  std::unique_ptr<ckpt::Source> source() && { return std::move(model_).source(); }

 private:
  // fp32 weights and moments of a rank's group.
  using Views = std::array<uint32_t, 1 + kNumMoments>;

  template <class... Parts>
  static Error corrupt(const std::string& where, const Parts&... parts) {
    return Error(ErrorCode::kCorruptData, cat(where, ": ", parts...));
  }

  void read_optimizer_states();
  void read_rank(size_t rank);
  void read_settings(const TorchFile& file, PickleValue optimizer, PickleValue base, PickleValue first_state);
  std::vector<std::vector<Part>> places_in_groups();
  std::vector<std::vector<Part>> places_on_ranks();
  uint64_t elements(size_t rank, size_t group) { return model_.pieces().elements_of(views_[rank][group][0]); }

  DeepSpeedModel model_;
  bool drop_optimizer_;
  std::vector<std::vector<Views>> views_;        // [rank][group]
  std::vector<std::vector<uint64_t>> paddings_;  // after each trained weight, by group; empty: none
  bool has_moments_ = true;
};

void ZeroCheckpoint::read_optimizer_states() {
  const DeepSpeedFiles& files = model_.files();
  if (files.optim_states.empty()) {
    if (files.by_rank) {
      throw Error(ErrorCode::kNotFound,
                  cat(model_.where(), ": contains no *_optim_states.pt; with ZeRO 3 these files have the weights"));
    }
    if (model_.has_other_optimizer()) {
      throw Error(ErrorCode::kUnsupported, cat(files.model_states[0],
                                               ": its optimizer state is not ZeRO's, which is not supported; give "
                                               "--drop-optimizer to convert the weights alone"));
    }
    return model_.say("there is no optimizer state");
  }
  if (files.by_rank && files.optim_states.size() != files.model_states.size()) {
    throw corrupt(model_.where(), "model states of ", files.model_states.size(), " ranks, but optimizer states of ",
                  files.optim_states.size());
  }
  for (size_t rank = 0; rank < files.optim_states.size(); ++rank) read_rank(rank);
  const std::vector<std::vector<Part>> places = files.by_rank ? places_on_ranks() : places_in_groups();
  size_t next = 0;
  for (const auto& group : model_.trained()) {
    for (const DeepSpeedModel::Weight& weight : group) {
      const std::vector<Part>& parts = places[next++];
      const auto runs = [&](size_t kind) {
        std::vector<TorchPieces::Run> made;
        for (const Part& part : parts) made.push_back({views_[part.rank][part.group][kind], part.first, part.count});
        return made;
      };
      model_.add_fp32(weight, runs(0));
      for (size_t k = 0; has_moments_ && k < kNumMoments; ++k) {
        model_.add(kDeepSpeedMoments[k].role, weight, runs(1 + k));
      }
    }
  }
  if (has_moments_) {
    model_.require_all(kDeepSpeedMoments[0].role);
  } else {
    model_.drop(core::TensorRole::kMaster);
  }
}

// Reads a rank's part of each group.
void ZeroCheckpoint::read_rank(size_t rank) {
  const bool by_rank = model_.files().by_rank;
  const TorchFile file(model_.files().optim_states[rank]);
  const PickleValue optimizer = deepspeed_member(file, file.root(), "optimizer_state_dict");
  const PickleValue groups =
      deepspeed_member(file, optimizer, by_rank ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
  const PickleValue base = deepspeed_member(file, optimizer, by_rank ? "optimizer_state_dict" : "base_optimizer_state");
  std::map<int64_t, PickleValue> state_of;
  if (base.is(PickleKind::kList)) {  // an elastic checkpoint
    for (const PickleValue state : base.items()) state_of.emplace(static_cast<int64_t>(state_of.size()), state);
  } else {
    for (const auto& [index, state] : deepspeed_member(file, base, "state").pairs()) {
      if (index.is(PickleKind::kInt)) state_of.emplace(index.integer(), state);
    }
  }
  if (rank == 0) {
    has_moments_ = !state_of.empty() && !drop_optimizer_;
    read_settings(file, optimizer, base, state_of.empty() ? base : state_of.begin()->second);
  }
  const uint32_t opened = model_.pieces().add_file(file.where());
  std::vector<Views>& all = views_.emplace_back();
  for (const PickleValue group : groups.items()) {
    const auto index = static_cast<int64_t>(all.size());
    Views views{};
    const auto tensor = file.tensor(group);
    if (!tensor || tensor->dtype != SafetensorsDType::kF32 || tensor->shape.size() != 1) {
      throw Error(ErrorCode::kUnsupported,
                  cat(file.where(), ": group ", index,
                      " of its fp32 weights is not an fp32 vector; was it swapped out of memory?"));
    }
    views[0] = model_.pieces().add_view(opened, *tensor);
    for (size_t k = 0; has_moments_ && k < kNumMoments; ++k) {
      const auto state = state_of.find(index);
      const auto value = state == state_of.end() ? std::nullopt : state->second.find(kDeepSpeedMoments[k].name);
      const auto moment = value ? file.tensor(*value) : std::nullopt;
      if (!moment) {
        throw Error(ErrorCode::kUnsupported, cat(file.where(), ": no ", kDeepSpeedMoments[k].name, " for group ", index,
                                                 ": only Adam's state is supported; give --drop-optimizer"));
      }
      views[1 + k] = model_.pieces().add_view(opened, *moment);
    }
    all.push_back(views);
  }
  if (all.size() != model_.trained().size()) {
    throw corrupt(file.where(), "it has ", all.size(), " groups of weights, but param_shapes has ",
                  model_.trained().size());
  }
}

// Reads the settings from the first rank; all ranks have the same.
void ZeroCheckpoint::read_settings(const TorchFile& file, PickleValue optimizer, PickleValue base,
                                   PickleValue first_state) {
  const size_t ranks = model_.files().optim_states.size();
  if (const auto count = optimizer.find("partition_count")) {
    int64_t partitions = 0;
    if (count->is(PickleKind::kInt)) partitions = count->integer();
    if (count->is(PickleKind::kList)) {
      for (const PickleValue one : count->items()) partitions = std::max(partitions, one.integer());
    }
    if (partitions != static_cast<int64_t>(ranks)) {
      throw corrupt(file.where(), "partition_count is ", partitions, ", but there are optimizer states of ", ranks,
                    " ranks");
    }
  }
  if (const auto paddings = optimizer.find("param_alignment_paddings")) {
    for (const PickleValue group : paddings->items()) {
      std::vector<uint64_t>& of_group = paddings_.emplace_back();
      for (const PickleValue padding : group.items()) {
        if (padding.integer() < 0) throw corrupt(file.where(), "a negative number in param_alignment_paddings");
        of_group.push_back(static_cast<uint64_t>(padding.integer()));
      }
    }
  }
  if (!has_moments_) {
    if (!drop_optimizer_) model_.say("the optimizer has taken no step: there are no moments");
    return;
  }
  std::optional<PickleValue> counter = optimizer.find("base_optimizer_state_step");
  if (!counter) counter = first_state.find("step");
  const auto step = counter ? read_count(file, *counter) : std::nullopt;
  if (step) model_.info().common["step"] = *step;
  const auto groups = base.find("param_groups");
  if (groups && groups->is(PickleKind::kList)) return model_.add_groups(file, *groups, step);
  model_.say("there are no param_groups (an elastic checkpoint): learning rate, betas and weight decay are unknown");
}

// ZeRO 1 and 2: a group's weights are consecutive in the concatenated partitions of all ranks.
std::vector<std::vector<Part>> ZeroCheckpoint::places_in_groups() {
  const uint64_t aligned = 2 * views_.size();  // the total of the partitions is padded to a multiple of it
  const auto round_up = [&](uint64_t count) { return (count + aligned - 1) / aligned; };
  const auto& trained = model_.trained();
  if (!paddings_.empty() && paddings_.size() != trained.size()) {
    throw corrupt(model_.where(), "param_alignment_paddings and param_shapes have different groups");
  }
  std::vector<std::vector<Part>> places;
  for (size_t group = 0; group < trained.size(); ++group) {
    if (!paddings_.empty() && paddings_[group].size() != trained[group].size()) {
      throw corrupt(model_.where(), "param_alignment_paddings and param_shapes have different weights in group ",
                    group);
    }
    Line line;
    for (size_t rank = 0; rank < views_.size(); ++rank) line.append(rank, group, elements(rank, group));
    Walk walk(model_.where(), line.elements());
    for (size_t i = 0; i < trained[group].size(); ++i) {
      const DeepSpeedModel::Weight& weight = trained[group][i];
      const uint64_t begin = walk.next(weight, weight.elements, paddings_.empty() ? 0 : paddings_[group][i]);
      line.cut(begin, weight.elements, places.emplace_back());
    }
    if (round_up(walk.at()) != round_up(line.elements())) {
      throw corrupt(model_.where(), "param_shapes account for ", walk.at(), " of the ", line.elements(),
                    " elements of group ", group);
    }
  }
  return places;
}

// ZeRO 3: every weight is cut into one piece per rank; the pieces on a rank are consecutive.
std::vector<std::vector<Part>> ZeroCheckpoint::places_on_ranks() {
  const uint64_t ranks = views_.size();
  std::vector<Line> lines(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t group = 0; group < views_[rank].size(); ++group) {
      lines[rank].append(rank, group, elements(rank, group));
    }
    if (lines[rank].elements() != lines[0].elements()) {
      throw corrupt(model_.where(), "rank ", rank, " holds ", lines[rank].elements(), " elements, but rank 0 ",
                    lines[0].elements());
    }
  }
  std::vector<std::vector<Part>> places;
  Walk walk(model_.where(), lines[0].elements());
  for (const auto& group : model_.trained()) {
    for (const DeepSpeedModel::Weight& weight : group) {
      const uint64_t piece = (weight.elements + ranks - 1) / ranks, begin = walk.next(weight, piece, 0);
      std::vector<Part>& parts = places.emplace_back();
      for (size_t rank = 0; rank < ranks; ++rank) {
        const uint64_t done = std::min(weight.elements, rank * piece);
        lines[rank].cut(begin, std::min(piece, weight.elements - done), parts);
      }
    }
  }
  if (walk.at() != lines[0].elements()) {
    throw corrupt(model_.where(), "param_shapes account for ", walk.at(), " of the ", lines[0].elements(),
                  " elements of a rank");
  }
  return places;
}

}  // namespace

std::string deepspeed_sign(const std::string& folder) {
  if (fs::exists(fs::path(folder) / kDeepSpeedLatest)) return kDeepSpeedLatest;
  const std::string states = first_model_states(folder);
  return fs::is_directory(fs::path(folder) / kUniversalZero) ? "" : states;
}

std::unique_ptr<ckpt::Source> open_deepspeed(const std::string& path, const HfNamedOptions& options,
                                             std::vector<std::string>& decisions) {
  return ZeroCheckpoint(path, options, decisions).source();
}

}  // namespace ms::convert
