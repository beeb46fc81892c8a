#include "convert/torch/rank_files.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "convert/detail/printable.h"
#include "convert/torch/adam_state.h"
#include "convert/torch/dtensor.h"
#include "convert/torch/plain_value.h"
#include "convert/torch/torch_pieces.h"
#include "core/error.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Dims;
using core::Error;
using core::ErrorCode;
using core::TensorRole;
using detail::printable;

constexpr std::string_view kModel = "model", kOptimizer = "optim", kExtra = "extra_state";
constexpr int64_t kMaxRanks = 1 << 16;

struct FileName {
  std::string_view kind;
  int64_t world_size = 0, rank = 0;
};

// Parses the digits at the start of `text` and removes them.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<FileName> parse_name(std::string_view name) {
  for (const std::string_view kind : {kModel, kOptimizer, kExtra}) {
    std::string_view rest = name;
    if (!take(rest, kind) || !take(rest, "_world_size_")) continue;
    const auto size = take_number(rest);
    if (!size || !take(rest, "_rank_")) continue;
    const auto rank = take_number(rest);
    if (rank && rest == ".pt") return FileName{kind, *size, *rank};
  }
  return std::nullopt;
}

std::string file_name(std::string_view kind, int64_t world_size, int64_t rank) {
  return cat(kind, "_world_size_", world_size, "_rank_", rank, ".pt");
}

bool is_dictionary(PickleValue value) {
  return value.is(PickleKind::kDict) || value.is_call_of("collections", "OrderedDict");
}

class RankFiles {
 public:
  RankFiles(const std::string& folder, std::vector<std::string>& decisions, RankOptimizer* optimizer)
      : folder_(folder), decisions_(decisions), optimizer_(optimizer), pieces_(std::make_unique<TorchPieces>(folder)) {
    find_files();
  }

  NamedShards read(bool drop_optimizer) && {
    for (int64_t rank = 0; rank < world_size_; ++rank) read_model(rank);
    if (!has_optimizer_ || drop_optimizer) {
      if (has_optimizer_) decisions_.push_back("optimizer state is left out");
    } else {
      for (int64_t rank = 0; rank < world_size_; ++rank) read_optimizer(rank);
    }
    if (optimizer_ != nullptr) optimizer_->is_there = has_optimizer_;
    if (has_extra_) {
      const bool scheduled = optimizer_ != nullptr && !drop_optimizer && read_scheduler();
      decisions_.push_back(cat("not copied from ", file_name(kExtra, world_size_, 0), " and the other ranks' files: ",
                               scheduled ? "" : "the learning rate schedule, ", "random generator states"));
    }
    return put_together();
  }

 private:
  // The part of a tensor that one rank holds.
  struct Part {
    int64_t rank = 0;
    size_t index = 0;  // in pieces_
    Dims held_shape;
    DTensorBox box;
  };
  struct Tensor {
    std::string key;
    TensorRole role = TensorRole::kParam;
    Dims shape;
    std::vector<Part> parts;
    int64_t last_rank = -1;  // last rank that holds part of it
  };

  template <class... Parts>
  static Error corrupt(const std::string& where, const Parts&... parts) {
    return Error(ErrorCode::kCorruptData, cat(where, ": ", parts...));
  }
  std::string path_of(std::string_view kind, int64_t rank) const {
    return (fs::path(folder_) / file_name(kind, world_size_, rank)).string();
  }

  void find_files();
  void read_model(int64_t rank);
  void read_optimizer(int64_t rank);
  void read_groups(const TorchFile& file);
  bool read_scheduler();
  std::optional<std::string> name_of_parameter(PickleValue key, const PickleValue& root, const std::string& where);
  bool add(const TorchFile& file, DTensorReader& reader, uint32_t opened, int64_t rank, TensorRole role,
           const std::string& key, PickleValue value);
  Tensor& tensor_of(TensorRole role, const std::string& key, const Dims& shape, const std::string& where);
  NamedShards put_together();
  void check_same(const Part& kept, const Part& other, const Tensor& tensor) const;

  std::string folder_;
  std::vector<std::string>& decisions_;
  RankOptimizer* optimizer_;  // null: settings are left out
  std::unique_ptr<TorchPieces> pieces_;
  int64_t world_size_ = 0;
  bool has_optimizer_ = false, has_extra_ = false, numbers_were_read_ = false;
  std::vector<Tensor> tensors_;
  std::map<std::pair<TensorRole, std::string>, size_t> by_key_;
  struct Added {
    bool is_cut = false;  // it is a DTensor
    size_t record = 0;    // record and offset of its storage
    uint64_t offset = 0;
  } added_;                             // set by the last add()
  std::vector<std::string> all_, cut_;  // tensor names in the model's order: all of them, and only the DTensors
  std::vector<std::string> numbered_;   // parameter names by the optimizer's parameter number
  int64_t others_ = 0;                  // entries that are not tensors
  std::string example_;
};

void RankFiles::find_files() {
  std::map<std::pair<std::string_view, int64_t>, std::set<int64_t>> found;  // (kind, world size) -> ranks
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (const auto parsed = parse_name(name)) found[{parsed->kind, parsed->world_size}].insert(parsed->rank);
  }
  std::set<int64_t> sizes;
  for (const auto& [key, ranks] : found) {
    if (key.first == kModel) sizes.insert(key.second);
  }
  if (sizes.empty()) throw Error(ErrorCode::kNotFound, cat(folder_, ": no file such as ", file_name(kModel, 1, 0)));
  if (sizes.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, cat(folder_, ": files of jobs with ", *sizes.begin(), " and with ",
                                                 *sizes.rbegin(), " ranks: move the files of one job elsewhere"));
  }
  world_size_ = *sizes.begin();
  if (world_size_ < 1 || world_size_ > kMaxRanks) {
    throw Error(ErrorCode::kUnsupported,
                cat(folder_, ": files of a job with ", world_size_, " ranks; 1 to ", kMaxRanks, " are supported"));
  }
  const auto require_all = [&](std::string_view kind) {
    const auto ranks = found.find({kind, world_size_});
    if (ranks == found.end()) return false;
    for (int64_t rank = 0; rank < world_size_; ++rank) {
      if (ranks->second.contains(rank)) continue;
      throw corrupt(folder_, file_name(kind, world_size_, rank), " is missing: there are files of ",
                    ranks->second.size(), " of the ", world_size_, " ranks");
    }
    if (static_cast<int64_t>(ranks->second.size()) != world_size_) {
      throw corrupt(folder_, file_name(kind, world_size_, *ranks->second.rbegin()),
                    " is from a rank beyond the others");
    }
    return true;
  };
  require_all(kModel);
  has_optimizer_ = require_all(kOptimizer);
  has_extra_ = found.contains({kExtra, world_size_});
}

RankFiles::Tensor& RankFiles::tensor_of(TensorRole role, const std::string& key, const Dims& shape,
                                        const std::string& where) {
  const auto [at, is_new] = by_key_.emplace(std::pair(role, key), tensors_.size());
  if (is_new) tensors_.push_back({key, role, shape, {}});
  Tensor& tensor = tensors_[at->second];
  if (tensor.shape != shape) {
    throw corrupt(where, printable(key), " has shape ", shape, " here, but ", tensor.shape, " on another rank");
  }
  return tensor;
}

// Returns false if the value is not a tensor.
bool RankFiles::add(const TorchFile& file, DTensorReader& reader, uint32_t opened, int64_t rank, TensorRole role,
                    const std::string& key, PickleValue value) {
  const std::string& where = file.where();
  const auto to_dims = [&](const std::vector<uint64_t>& shape) {
    if (shape.size() > Dims::kMaxAxes) {
      throw Error(ErrorCode::kUnsupported, cat(where, ": ", printable(key), " has ", shape.size(), " axes; at most ",
                                               Dims::kMaxAxes, " are supported"));
    }
    return Dims(shape.begin(), shape.end());
  };
  bool is_cut = false;
  std::vector<DTensorBox> boxes;
  TorchTensor local;
  Dims shape;
  try {
    if (const auto tensor = reader.read(value)) {
      const auto& ranks = tensor->mesh->ranks;
      const auto beyond = std::find_if(ranks.begin(), ranks.end(), [&](int64_t r) { return r >= world_size_; });
      if (beyond != ranks.end()) {
        throw corrupt(where, "its mesh, ", tensor->mesh->text(), ", has rank ", *beyond,
                      ", but by the file names there are only ", world_size_, " ranks");
      }
      is_cut = true;
      boxes = boxes_on_rank(*tensor, rank, where);
      local = tensor->local;
      shape = to_dims(tensor->shape);
    } else if (const auto plain = file.tensor(value)) {
      local = *plain;
      shape = to_dims(plain->shape);
      boxes.push_back({Dims(shape.size(), 0), shape, Dims(shape.size(), 0)});
    } else {
      return false;
    }
  } catch (const Error& error) {
    throw error.within(printable(key));
  }
  const auto weight = by_key_.find({TensorRole::kParam, key});
  if (role != TensorRole::kParam && role != TensorRole::kBuffer && weight != by_key_.end() &&
      tensors_[weight->second].shape != shape) {
    throw corrupt(where, core::role_name(role), " of ", printable(key), " has shape ", shape, ", but the weight ",
                  tensors_[weight->second].shape);
  }
  Tensor& tensor = tensor_of(role, key, shape, where);
  if (tensor.last_rank == rank) throw corrupt(where, printable(key), " occurs twice");
  tensor.last_rank = rank;
  added_ = {is_cut, local.record, local.offset};
  if (boxes.empty()) return true;  // the rank holds none of it
  const uint64_t elements = local.elements();
  std::vector<uint64_t> held = local.shape;
  const Dims held_shape = to_dims(held);
  const uint32_t view = pieces_->add_view(opened, std::move(local));
  const size_t index = pieces_->add_tensor(cat(core::role_name(role), " of ", key, " on rank ", rank), std::move(held),
                                           {{view, 0, elements}});
  for (DTensorBox& box : boxes) tensor.parts.push_back({rank, index, held_shape, std::move(box)});
  return true;
}

void RankFiles::read_model(int64_t rank) {
  const TorchFile file(path_of(kModel, rank));
  if (!is_dictionary(file.root())) throw corrupt(file.where(), "contains no dictionary of tensors");
  DTensorReader reader(file);
  const uint32_t opened = pieces_->add_file(file.where());
  std::set<std::pair<size_t, uint64_t>> seen;
  for (const auto& [key, value] : file.root().pairs()) {
    if (!key.is(PickleKind::kString)) throw corrupt(file.where(), "a key that is not a string");
    const std::string name(key.text());
    if (!add(file, reader, opened, rank, TensorRole::kParam, name, value)) {
      if (rank == 0 && others_++ == 0) example_ = name;
      continue;
    }
    // A tied weight has two names but one storage, and is one parameter. If some tensors are DTensors, plain tensors
    // are buffers.
    if (rank > 0 || !seen.insert({added_.record, added_.offset}).second) continue;
    all_.push_back(name);
    if (added_.is_cut) cut_.push_back(name);
  }
}

// The optimizer identifies parameters by name, or by number: their position in the model, if it has a single group.
std::optional<std::string> RankFiles::name_of_parameter(PickleValue key, const PickleValue& root,
                                                        const std::string& where) {
  if (key.is(PickleKind::kString)) return std::string(key.text());
  if (!key.is(PickleKind::kInt))
    throw corrupt(where, "optimizer state under a key that is neither a name nor a number");
  if (!numbers_were_read_) {
    numbers_were_read_ = true;
    const auto groups = root.find("param_groups");
    if (groups && groups->is(PickleKind::kList) && groups->items().size() == 1) {
      const auto params = groups->items()[0].find("params");
      const size_t count = params ? params->items().size() : 0;
      if (count == cut_.size()) {
        numbered_ = cut_;
      } else if (count == all_.size()) {
        numbered_ = all_;
      }
    }
    decisions_.push_back(!numbered_.empty()
                             ? "optimizer state is stored by parameter number: numbers follow the order of the model"
                             : "optimizer state is stored by parameter number, and the groups do not show which "
                               "parameters these are: it "
                               "keeps the numbers");
  }
  const int64_t number = key.integer();
  if (number < 0 || number >= static_cast<int64_t>(numbered_.size())) return std::nullopt;
  return numbered_[static_cast<size_t>(number)];
}

void RankFiles::read_optimizer(int64_t rank) {
  const TorchFile file(path_of(kOptimizer, rank));
  const auto states = file.root().find("state");
  if (!states || !is_dictionary(*states)) throw corrupt(file.where(), "contains no optimizer state");
  if (rank == 0 && optimizer_ != nullptr) read_groups(file);
  DTensorReader reader(file);
  const uint32_t opened = pieces_->add_file(file.where());
  for (const auto& [key, state] : states->pairs()) {
    if (!is_dictionary(state)) throw corrupt(file.where(), "optimizer state that is not a dictionary");
    const auto name = name_of_parameter(key, file.root(), file.where());
    const std::string text = key.is(PickleKind::kString) ? std::string(key.text()) : std::to_string(key.integer());
    for (const auto& [field, value] : state.pairs()) {
      if (!field.is(PickleKind::kString)) throw corrupt(file.where(), "optimizer state without a name");
      const bool first = field.text() == "exp_avg", second = field.text() == "exp_avg_sq";
      const bool moment = name && (first || second);
      const TensorRole role = !moment ? TensorRole::kBuffer : first ? TensorRole::kExpAvg : TensorRole::kExpAvgSq;
      const std::string place = cat("optim.state.", name.value_or(text), ".", field.text());
      if (!add(file, reader, opened, rank, role, moment ? *name : place, value) && rank == 0 && others_++ == 0) {
        example_ = place;
      }
    }
  }
}

// Reads the groups of rank 0; all ranks have the same ones.
void RankFiles::read_groups(const TorchFile& file) {
  const auto groups = file.root().find("param_groups");
  if (!groups || !groups->is(PickleKind::kList)) return;
  for (const PickleValue group : groups->items()) {
    if (!is_dictionary(group)) throw corrupt(file.where(), "a parameter group that is not a dictionary");
    NamedGroup& named = optimizer_->groups.emplace_back();
    named.settings = read_adam_group(&file, group);
    const auto params = group.find("params");
    if (!params || !(params->is(PickleKind::kList) || params->is(PickleKind::kTuple))) continue;
    for (const PickleValue item : params->items()) {
      if (const auto name = name_of_parameter(item, file.root(), file.where())) named.names.push_back(*name);
    }
  }
}

// Reads rank 0's copy; its format is that of torch.optim.lr_scheduler's state_dict().
bool RankFiles::read_scheduler() {
  const TorchFile file(path_of(kExtra, 0));
  const auto state = file.root().find("lr_scheduler");
  if (!state || !is_dictionary(*state)) return false;
  auto plain = plain_value(*state);
  if (!plain || !plain->is_object()) return false;
  optimizer_->scheduler = std::move(*plain);
  return true;
}

// Compares both ends: a replica from another step differs there.
void RankFiles::check_same(const Part& kept, const Part& other, const Tensor& tensor) const {
  constexpr uint64_t kLooked = 4096;  // elements compared at each end
  const auto a = (*pieces_)[kept.index], b = (*pieces_)[other.index];
  const uint64_t item = bits_of(a.dtype) / 8, elements = (a.end - a.begin) / item;
  bool same = a.dtype == b.dtype && kept.held_shape == other.held_shape;
  for (const uint64_t first : {uint64_t{0}, elements - std::min(elements, kLooked)}) {
    if (!same) break;
    std::vector<std::byte> left(std::min(elements, kLooked) * item), right(left.size());
    pieces_->peek(kept.index, first, left);
    pieces_->peek(other.index, first, right);
    same = left == right;
  }
  if (same) return;
  throw corrupt(folder_, printable(tensor.key), " (", core::role_name(tensor.role), "): ranks ", kept.rank, " and ",
                other.rank, " hold the same part of it, at ", kept.box.offset, ", with different values");
}

NamedShards RankFiles::put_together() {
  if (others_ > 0)
    decisions_.push_back(cat(others_, " entries that are not tensors are left out, such as ", printable(example_)));
  NamedShards shards;
  shards.where = folder_;
  for (Tensor& tensor : tensors_) {
    // Plain tensors are on every rank, DTensors on the ranks of their mesh. The coverage check reports missing parts.
    if (tensor.parts.empty() && core::num_elements(tensor.shape) > 0) {
      throw corrupt(folder_, printable(tensor.key), " has shape ", tensor.shape, ", but no rank holds any part of it");
    }
    const auto before = [](const Part& a, const Part& b) {
      const auto lexicographic = [](const Dims& x, const Dims& y) {
        return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
      };
      if (a.box.offset != b.box.offset) return lexicographic(a.box.offset, b.box.offset);
      if (a.box.extent != b.box.extent) return lexicographic(a.box.extent, b.box.extent);
      return a.rank < b.rank;
    };
    std::sort(tensor.parts.begin(), tensor.parts.end(), before);
    const Part* kept = nullptr;
    for (Part& part : tensor.parts) {
      if (kept != nullptr && kept->box.offset == part.box.offset && kept->box.extent == part.box.extent) {
        check_same(*kept, part, tensor);
        continue;
      }
      kept = &part;
      shards.shards.push_back({tensor.key, tensor.role, tensor.shape, part.box.offset, part.box.extent, 0, part.index,
                               part.held_shape, part.box.held_at});
    }
  }
  shards.files.push_back(std::move(pieces_));
  return shards;
}

}  // namespace

std::string rank_files_sign(const std::string& folder) {
  std::string first;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    const auto parsed = parse_name(name);
    if (parsed && parsed->kind == kModel && (first.empty() || name < first)) first = std::move(name);
  }
  return first;
}

NamedShards read_rank_files(const std::string& folder, bool drop_optimizer, std::vector<std::string>& decisions,
                            RankOptimizer* optimizer) {
  return RankFiles(folder, decisions, optimizer).read(drop_optimizer);
}

}  // namespace ms::convert
