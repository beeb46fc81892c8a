#include <cstring>
#include <map>
#include <utility>

#include "ckpt/optimizer_settings.h"
#include "convert/detail/dense_box.h"
#include "convert/detail/printable.h"
#include "convert/megatron.h"
#include "convert/megatron/model.h"
#include "convert/megatron/optimizer.h"
#include "convert/megatron/progress.h"
#include "convert/passthrough.h"
#include "core/error.h"
#include "core/io/bulk_reader.h"
#include "core/layout/box.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"
#include "core/layout/tensor_cut.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

// Where a shard is stored: elements of a tensor from `first` on, dense.
struct Placement {
  const TorchFile* file = nullptr;
  TorchTensor tensor;
  std::string name;  // tensor name in the file
  uint64_t first = 0;
};

constexpr uint64_t kComparedElements = 4096;  // at each end of a copy of optimizer state

bool same_range(const MegatronState& a, const MegatronState& b, uint64_t begin, uint64_t end) {
  const uint64_t item = bits_of(a.tensor.dtype) / 8, at_once = std::min<uint64_t>((1 << 20) / item, end - begin);
  std::vector<std::byte> left(at_once * item), right(at_once * item);
  for (uint64_t done = begin; done < end; done += at_once) {
    const size_t bytes = std::min(at_once, end - done) * item;
    a.file->peek(a.tensor, a.first + done, std::span(left).first(bytes));
    b.file->peek(b.tensor, b.first + done, std::span(right).first(bytes));
    if (std::memcmp(left.data(), right.data(), bytes) != 0) return false;
  }
  return true;
}

// Compares weights in full, optimizer state at both ends.
bool same_bits(const MegatronState& a, const MegatronState& b) {
  if (a.tensor.dtype != b.tensor.dtype || a.parameter->tensor.shape != b.parameter->tensor.shape) return false;
  const uint64_t elements = a.parameter->tensor.elements();
  if (a.role == core::TensorRole::kParam || elements <= 2 * kComparedElements) return same_range(a, b, 0, elements);
  return same_range(a, b, 0, kComparedElements) && same_range(a, b, elements - kComparedElements, elements);
}

class MegatronSource final : public ckpt::Source {
 public:
  MegatronSource(const std::string& path, const MegatronOptions& options, std::vector<std::string>& decisions)
      : tree_(open_megatron_tree(path, options.extras)), model_(read_megatron_model(tree_, options, decisions)) {
    if (!options.drop_optimizer) {
      optimizer_ = read_megatron_optimizer(tree_, model_, decisions);
    } else if (tree_.ranks[0].find("optimizer") || !tree_.ranks[0].distributed_optimizer.empty()) {
      decisions.push_back("optimizer state is left out");
    }
    std::vector<std::vector<MegatronState>> weights(tree_.ranks.size());
    for (size_t r = 0; r < tree_.ranks.size(); ++r) {
      for (const MegatronChunk& chunk : model_.chunks[r]) {
        for (const MegatronParameter& p : chunk) {
          const bool is_buffer = model_.specs[p.spec].is_buffer;
          weights[r].push_back({&p, is_buffer ? core::TensorRole::kBuffer : core::TensorRole::kParam,
                                tree_.ranks[r].file.get(), p.tensor, p.name, 0});
        }
      }
    }
    if (add_tensors(core::TensorRole::kParam, weights)) {
      decisions.push_back(model_.config.mtp_num_layers > 0
                              ? "the word embeddings on the last stage are a copy, and left out"
                              : "the output layer on the last stage is a copy of the word embeddings, and left out");
    }
    add_tensors(core::TensorRole::kBuffer, weights);
    for (const core::TensorRole role :
         {core::TensorRole::kMaster, core::TensorRole::kExpAvg, core::TensorRole::kExpAvgSq}) {
      add_tensors(role, optimizer_.states);
    }
    optimizer_.states.clear();
    info_.model = model_.config;
    info_.layout = layout::layout_to_json(model_.layout);
    const PipelineExtras& extras = model_.layers.extras();
    if (extras.dualpipev) info_.layout["layer_map"] = "dualpipev";
    if (!extras.noop_layers.empty()) info_.layout["noop_layers"] = extras.noop_layers;
    add_megatron_progress(tree_.ranks[0].file->root(), *tree_.ranks[0].args, model_.specs, info_);
    if (!model_.hf_config.is_null()) {
      info_.model_extra["hf_config"] = std::move(model_.hf_config);
      // They belong to the converter, not to a run.
      for (const char* key : {"config", "optimizer"}) info_.common.erase(key);
    }
    if (optimizer_.step) ckpt::set_missing_steps(info_.common, *optimizer_.step);
  }

  std::string folder() const { return tree_.folder.string(); }  // of the iteration
  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const Placement& place = placements_.at(static_cast<size_t>(shard));
    const int64_t item = core::size_of(shards_.dtype_of(static_cast<size_t>(shard)));
    try {
      detail::read_dense_box(shards_.extents(static_cast<size_t>(shard)), item, offset, extent, out,
                             [&](int64_t at, std::span<std::byte> bytes) {
                               place.file->read(place.tensor, place.first + static_cast<uint64_t>(at / item), bytes);
                             });
    } catch (const Error& error) {
      throw error.within(cat("tensor ", detail::printable(place.name)));
    }
  }
  void begin_one_pass() override {
    for (const MegatronRank& rank : tree_.ranks) rank.file->begin_one_pass();
  }
  void end_one_pass(bool all) override {
    for (const MegatronRank& rank : tree_.ranks) rank.file->end_one_pass(all);
  }
  int64_t scratch_bytes() const override { return detail::kScratchBytes + core::BulkReader::kBufferBytes; }
  std::string describe(int32_t shard) const override {
    const Placement& place = placements_.at(static_cast<size_t>(shard));
    return cat(place.file->where(), ":", detail::printable(place.name));
  }

 private:
  // The state holds the rank's part of its parameter.
  void add_shards(const MegatronRank& rank, const MegatronState& state) {
    const layout::ParameterSpec& spec = model_.specs[state.parameter->spec];
    const MegatronModel::Cut cut = model_.cut_of(spec, rank.tp);
    const core::Dims shape = layout::local_shape(spec, model_.padded, cut.size);
    const int64_t elements = core::num_elements(shape);
    uint64_t first = state.first;
    const auto add_range = [&](int64_t begin, int64_t end) {
      for (layout::Box& box : layout::boxes_of_local_range(spec, model_.padded, cut.size, cut.rank, begin, end)) {
        const auto size = static_cast<uint64_t>(core::num_elements(box.extent));
        shards_.push_back({spec.key, state.role, *to_core_dtype(state.tensor.dtype), spec.global_shape,
                           std::move(box.offset), std::move(box.extent)});
        placements_.push_back({state.file, state.tensor, state.name, first});
        first += size;
      }
    };
    const RowsOfBlocks& rows = state.parameter->rows;
    if (rows.each == 0) return add_range(0, elements);
    const int64_t columns = shape[1];
    for (int64_t block = 0; block < shape[0]; block += rows.each) {
      add_range((block + rows.first) * columns, (block + rows.first + rows.count) * columns);
    }
  }

  bool add_tensors(core::TensorRole role, const std::vector<std::vector<MegatronState>>& of_rank);

  MegatronTree tree_;
  MegatronModel model_;
  MegatronOptimizer optimizer_;
  ckpt::CheckpointInfo info_;
  ckpt::ShardTable shards_;
  std::vector<Placement> placements_;  // of shards_
};

// of: null if the other rank has none.
void check_copy(const MegatronState& copy, const MegatronState* of, const char* why) {
  if (of != nullptr && same_bits(copy, *of)) return;
  throw Error(ErrorCode::kCorruptData,
              cat(copy.file->where(), ": tensor ", detail::printable(copy.name), " is not bitwise equal to ",
                  of == nullptr ? std::string("the original on its rank") : cat(of->name, " of ", of->file->where()),
                  ", but ", why));
}

// Adds the states of this role. Copies are compared with their original and skipped. Returns true if there is a copy of
// tied embeddings.
bool MegatronSource::add_tensors(core::TensorRole role, const std::vector<std::vector<MegatronState>>& of_rank) {
  const auto tp_size = static_cast<size_t>(tree_.tp);
  using Held = std::pair<size_t, int64_t>;  // (parameter and tp rank, its first row of blocks)
  std::map<Held, const MegatronState*> holders;
  std::vector<std::pair<const MegatronState*, Held>> tied_copies;  // the copy, and the key of its original in holders
  for (size_t r = 0; r < of_rank.size(); ++r) {
    const MegatronRank& rank = tree_.ranks[r];
    for (const MegatronState& state : of_rank[r]) {
      if (state.role != role) continue;
      const layout::ParameterSpec& spec = model_.specs[state.parameter->spec];
      const size_t first_holder = state.parameter->spec * tp_size;
      const Held holder{first_holder + static_cast<size_t>(model_.cut_of(spec, rank.tp).rank),
                        state.parameter->rows.first};
      if (state.parameter->is_tied_copy) {
        tied_copies.emplace_back(&state, holder);
        continue;
      }
      if (holders[holder] != nullptr) {
        check_copy(state, holders[holder], "expert-parallel ranks must hold the same");
        continue;
      }
      holders[holder] = &state;
      const Held first{first_holder, holder.second};
      if (holder != first && spec.rule == layout::TpRule::kReplicated) {
        check_copy(state, holders[first], "tensor-parallel ranks must hold the same");
      } else {
        add_shards(rank, state);
      }
    }
  }
  for (const auto& [copy, holder] : tied_copies) {
    check_copy(*copy, holders[holder],
               model_.config.mtp_num_layers > 0 ? "args.mtp_num_layers is set"
                                                : "args.untie_embeddings_and_output_weights is False");
  }
  return !tied_copies.empty();
}

}  // namespace

std::unique_ptr<ckpt::Source> open_megatron(const std::string& path, const MegatronOptions& options,
                                            std::vector<std::string>& decisions) {
  auto source = std::make_unique<MegatronSource>(path, options, decisions);
  const std::string folder = source->folder();
  return with_passthrough_files(std::move(source), folder);
}

}  // namespace ms::convert
