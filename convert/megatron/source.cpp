#include <cstring>

#include "convert/detail/dense_box.h"
#include "convert/detail/printable.h"
#include "convert/megatron.h"
#include "convert/megatron/model.h"
#include "convert/megatron/progress.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

// Elements of a stored tensor, from `first` on: a shard, dense.
struct Placement {
  const TorchFile* file = nullptr;
  TorchTensor tensor;
  std::string name;  // of the tensor in the file
  uint64_t first = 0;
};

bool same_bits(const TorchFile& file_a, const TorchTensor& a, const TorchFile& file_b, const TorchTensor& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  const uint64_t item = bits_of(a.dtype) / 8, elements = a.elements(), at_once = (1 << 20) / item;
  std::vector<std::byte> left(at_once * item), right(at_once * item);
  for (uint64_t done = 0; done < elements; done += at_once) {
    const size_t bytes = std::min(at_once, elements - done) * item;
    file_a.read(a, done, std::span(left).first(bytes));
    file_b.read(b, done, std::span(right).first(bytes));
    if (std::memcmp(left.data(), right.data(), bytes) != 0) return false;
  }
  return true;
}

class MegatronSource final : public ckpt::Source {
 public:
  MegatronSource(const std::string& path, const MegatronOptions& options, std::vector<std::string>& decisions)
      : tree_(open_megatron_tree(path)), model_(read_megatron_model(tree_, options.true_vocab_size, decisions)) {
    add_weights(decisions);
    info_.model = model_.config;
    info_.layout = ckpt::layout_to_json(model_.layout);
    add_progress(decisions);
  }

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
  std::string describe(int32_t shard) const override {
    const Placement& place = placements_.at(static_cast<size_t>(shard));
    return cat(place.file->where(), ":", detail::printable(place.name));
  }

 private:
  // The tensor holds the rank's part of the parameter from element `first` on.
  void add_shards(const MegatronRank& rank, const ckpt::ParameterSpec& spec, core::TensorRole role,
                  const TorchFile& file, const TorchTensor& tensor, const std::string& name, uint64_t first) {
    const int64_t elements = core::num_elements(ckpt::local_shape(spec, model_.padded, tree_.tp));
    for (ckpt::Box& box : ckpt::boxes_of_local_range(spec, model_.padded, tree_.tp, rank.tp, 0, elements)) {
      const auto size = static_cast<uint64_t>(core::num_elements(box.extent));
      shards_.push_back({spec.key, role, *to_core_dtype(tensor.dtype), spec.global_shape, std::move(box.offset),
                         std::move(box.extent)});
      placements_.push_back({&file, tensor, name, first});
      first += size;
    }
  }

  void add_weights(std::vector<std::string>& decisions);
  void check_copy(const MegatronRank& rank, const MegatronParameter& copy, const MegatronRank& of_rank,
                  const MegatronParameter& of, const char* why) const;
  void add_progress(std::vector<std::string>& decisions);

  MegatronTree tree_;
  MegatronModel model_;
  ckpt::CheckpointInfo info_;
  ckpt::ShardTable shards_;
  std::vector<Placement> placements_;  // of shards_
};

void MegatronSource::check_copy(const MegatronRank& rank, const MegatronParameter& copy, const MegatronRank& of_rank,
                                const MegatronParameter& of, const char* why) const {
  if (same_bits(*rank.file, copy.tensor, *of_rank.file, of.tensor)) return;
  throw Error(ErrorCode::kCorruptData,
              cat(rank.file->where(), ": tensor ", detail::printable(copy.name), " is not bit for bit ", of.name,
                  " of ", of_rank.file->where(), ", but ", why));
}

void MegatronSource::add_weights(std::vector<std::string>& decisions) {
  struct Holder {
    const MegatronRank* rank = nullptr;
    const MegatronParameter* parameter = nullptr;
  };
  std::vector<Holder> holders(model_.specs.size() * static_cast<size_t>(tree_.tp));  // of each parameter, by tp
  std::vector<Holder> tied_copies;
  for (size_t r = 0; r < tree_.ranks.size(); ++r) {
    const MegatronRank& rank = tree_.ranks[r];
    for (const MegatronChunk& chunk : model_.chunks[r]) {
      for (const MegatronParameter& parameter : chunk) {
        const ckpt::ParameterSpec& spec = model_.specs[parameter.spec];
        Holder* of_ranks = &holders[parameter.spec * static_cast<size_t>(tree_.tp)];
        if (parameter.is_tied_copy) {
          tied_copies.push_back({&rank, &parameter});
          continue;
        }
        of_ranks[rank.tp] = {&rank, &parameter};
        if (spec.rule == ckpt::TpRule::kReplicated && rank.tp > 0) {
          check_copy(rank, parameter, *of_ranks[0].rank, *of_ranks[0].parameter,
                     "every tensor-parallel rank holds the same");
          continue;
        }
        add_shards(rank, spec, core::TensorRole::kParam, *rank.file, parameter.tensor, parameter.name, 0);
      }
    }
  }
  for (const Holder& copy : tied_copies) {
    const Holder& original =
        holders[copy.parameter->spec * static_cast<size_t>(tree_.tp) + static_cast<size_t>(copy.rank->tp)];
    check_copy(*copy.rank, *copy.parameter, *original.rank, *original.parameter,
               "args.untie_embeddings_and_output_weights is False");
  }
  if (!tied_copies.empty()) {
    decisions.push_back("the output layer on the last stage is a copy of the word embeddings, and left out");
  }
}

void MegatronSource::add_progress(std::vector<std::string>& decisions) {
  const MegatronRank& rank = tree_.ranks[0];
  if (rank.find("optimizer") || !rank.distributed_optimizer.empty()) {
    decisions.push_back("optimizer state is not read yet, and left out");
  }
  add_megatron_progress(rank.file->root(), *rank.args, info_);
}

}  // namespace

std::unique_ptr<ckpt::Source> open_megatron(const std::string& path, const MegatronOptions& options,
                                            std::vector<std::string>& decisions) {
  return std::make_unique<MegatronSource>(path, options, decisions);
}

}  // namespace ms::convert
