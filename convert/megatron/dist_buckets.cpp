#include "convert/megatron/dist_buckets.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "convert/detail/printable.h"
#include "convert/megatron/args_layout.h"
#include "convert/megatron/master_weights.h"
#include "convert/megatron/optimizer_order.h"
#include "convert/megatron/stage_plan.h"
#include "core/error.h"
#include "core/layout/box.h"
#include "core/layout/parameter_specs.h"
#include "core/layout/tensor_cut.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

constexpr std::string_view kDistributed = "optimizer.distributed.";
constexpr int64_t kProofElements = 4096;  // at each end of a parameter

using Chunks = std::vector<const DcpReader::Chunk*>;

// The payloads of a bucket, in the order of kOptimizerKinds.
struct Bucket {
  std::array<const std::string*, 3> keys{};
  std::array<const DcpReader::Tensor*, 3> tensors{};
};

class BucketReader {
 public:
  BucketReader(const DcpReader& reader, const MegatronModel& model, const MegatronSpelling& spelling,
               const BucketWeights& weights)
      : reader_(reader), model_(model), spelling_(spelling), weights_(weights) {}

  // Returns false if the buckets do not fit these layers; why() has the reason.
  bool read();
  const std::string& why() const { return why_; }
  size_t fitted() const { return fitted_; }  // number of parameters that fit
  std::vector<BucketPart> take_parts() { return std::move(parts_); }

 private:
  struct Rank {
    int tp = 0, pp = 0, ep = 0;
  };
  bool read_rank(const StagePlan& plan, const Rank& rank, OptimizerPart part, int64_t group);
  bool read_buffer(const MegatronParameters& parameters, const Rank& rank, const std::vector<Bucket>& buckets,
                   const std::string& name);
  std::vector<Bucket> find_buckets(OptimizerPart part, int64_t group, int64_t buffer) const;
  bool rounds_to_weight(const layout::ParameterSpec& spec, const MegatronModel::Cut& cut, const Bucket& bucket,
                        int64_t first, int64_t elements) const;
  const Chunks& chunks_of(const DcpReader::Tensor& tensor, const std::string& key) const;
  // Calls visit(chunk, first, count) for the elements [first, first + count) of a bucket.
  template <class Visit>
  void for_each_run(const DcpReader::Tensor& tensor, const std::string& key, int64_t first, int64_t count,
                    const Visit& visit) const;

  const DcpReader& reader_;
  const MegatronModel& model_;
  MegatronSpelling spelling_;
  const BucketWeights& weights_;
  std::vector<BucketPart> parts_;
  std::set<const DcpReader::Tensor*> used_;
  size_t fitted_ = 0;
  std::string why_;
  mutable std::map<const DcpReader::Tensor*, Chunks> chunks_;
};

const Chunks& BucketReader::chunks_of(const DcpReader::Tensor& tensor, const std::string& key) const {
  const auto [found, is_new] = chunks_.try_emplace(&tensor);
  Chunks& chunks = found->second;
  if (!is_new) return chunks;
  for (const DcpReader::Chunk& chunk : tensor.chunks) {
    if (chunk.extent[0] > 0) chunks.push_back(&chunk);
  }
  std::sort(chunks.begin(), chunks.end(), [](const auto* a, const auto* b) { return a->offset[0] < b->offset[0]; });
  int64_t end = 0;
  for (const DcpReader::Chunk* chunk : chunks) {
    if (chunk->offset[0] != end) {
      throw Error(ErrorCode::kCorruptData, cat(reader_.folder(), ": ", printable(key), ": its boxes ",
                                               chunk->offset[0] < end ? "overlap" : "leave a gap", " at ", end));
    }
    end += chunk->extent[0];
  }
  return chunks;
}

template <class Visit>
void BucketReader::for_each_run(const DcpReader::Tensor& tensor, const std::string& key, int64_t first, int64_t count,
                                const Visit& visit) const {
  const Chunks& chunks = chunks_of(tensor, key);
  auto at = std::upper_bound(chunks.begin(), chunks.end(), first,
                             [](int64_t element, const auto* chunk) { return element < chunk->offset[0]; });
  for (at = std::prev(at); count > 0; ++at) {
    const int64_t within = first - (*at)->offset[0], here = std::min(count, (*at)->extent[0] - within);
    visit(**at, within, here);
    first += here;
    count -= here;
  }
}

// If experts have their own optimizer, there are two optimizers, but only on stages with experts.
std::vector<Bucket> BucketReader::find_buckets(OptimizerPart part, int64_t group, int64_t buffer) const {
  const auto& all = reader_.tensors();
  const std::string own = cat(kDistributed, "dp_group_idx_", group, ".gbuf_idx_", buffer, ".dtype_(");
  std::string head =
      part == OptimizerPart::kAll ? own : cat("chained_", part == OptimizerPart::kDense ? 0 : 1, ".", own);
  auto begin = all.lower_bound(head);
  if (part == OptimizerPart::kDense && (begin == all.end() || !begin->first.starts_with(head))) {
    head = own;
    begin = all.lower_bound(head);
  }
  if (begin == all.end() || !begin->first.starts_with(head)) return {};
  const size_t tail = begin->first.find(").bucket_idx_", head.size());
  if (tail == std::string::npos) return {};
  const std::string of_type = begin->first.substr(0, tail);
  std::vector<Bucket> buckets;
  while (true) {
    Bucket bucket;
    const std::string name = cat(of_type, ").bucket_idx_", buckets.size(), ".");
    for (size_t k = 0; k < bucket.keys.size(); ++k) {
      const auto found = all.find(cat(name, kOptimizerKinds[k].key));
      if (found == all.end()) {
        if (k == 0) return buckets;
        throw Error(ErrorCode::kUnsupported,
                    cat(reader_.folder(), ": no ", printable(cat(name, kOptimizerKinds[k].key)),
                        ": only Adam's state is supported; give --drop-optimizer"));
      }
      bucket.keys[k] = &found->first;
      bucket.tensors[k] = &found->second;
      const auto dtype = to_core_dtype(found->second.dtype);
      if (found->second.shape.size() != 1 || found->second.shape != bucket.tensors[0]->shape) {
        throw Error(ErrorCode::kCorruptData,
                    cat(reader_.folder(), ": ", printable(found->first), " has shape ", found->second.shape,
                        ", which is not that of a bucket, or differs from its param"));
      }
      if (dtype != core::DType::kFp32 && dtype != core::DType::kBf16 && dtype != core::DType::kFp16) {
        throw Error(ErrorCode::kUnsupported,
                    cat(reader_.folder(), ": ", printable(found->first), " is ",
                        safetensors_dtype_name(found->second.dtype), "; expected F32, BF16 or F16"));
      }
    }
    buckets.push_back(bucket);
  }
}

// Compares both ends of the parameter: any other contiguous range would fail.
bool BucketReader::rounds_to_weight(const layout::ParameterSpec& spec, const MegatronModel::Cut& cut,
                                    const Bucket& bucket, int64_t first, int64_t elements) const {
  const DcpReader::Tensor& master = *bucket.tensors[0];
  const core::DType weight = weights_.dtype(spec.key), from = *to_core_dtype(master.dtype);
  const int64_t count = std::min(elements, kProofElements);
  const auto bytes_of = [](int64_t of, core::DType dtype) { return static_cast<size_t>(of * core::size_of(dtype)); };
  std::vector<std::byte> read(bytes_of(count, from)), wanted(bytes_of(count, weight));
  for (const int64_t begin : {int64_t{0}, elements - count}) {
    std::byte* to = read.data();
    for_each_run(master, *bucket.keys[0], first + begin, count,
                 [&](const DcpReader::Chunk& chunk, int64_t at, int64_t here) {
                   reader_.peek(master, chunk, {at}, {here}, to);
                   to += bytes_of(here, from);
                 });
    size_t compared = 0;  // vocabulary padding has no weights
    for (const layout::Box& box :
         layout::boxes_of_local_range(spec, model_.padded, cut.size, cut.rank, begin, begin + count)) {
      weights_.read(spec, box, wanted.data() + compared);
      compared += bytes_of(core::num_elements(box.extent), weight);
    }
    if (!round_to_weights(read, from, std::span(wanted).first(compared), weight)) return false;
  }
  return true;
}

bool BucketReader::read_buffer(const MegatronParameters& parameters, const Rank& rank,
                               const std::vector<Bucket>& buckets, const std::string& name) {
  std::vector<int64_t> lengths;
  for (const Bucket& bucket : buckets) lengths.push_back(bucket.tensors[0]->shape[0]);
  const auto places = places_in_buckets(flat_parameters(model_, parameters), lengths, true, 0);
  if (!places) {
    why_ = cat(name, " has ", buckets.size(), " buckets ", lengths, ", which do not fit its weights");
    return false;
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    const MegatronParameter& parameter = *parameters[p];
    const layout::ParameterSpec& spec = model_.specs[model_.spec_on_rank(parameter.spec, rank.tp, rank.ep)];
    const MegatronModel::Cut cut = model_.cut_of(spec, rank.tp);
    const Bucket& bucket = buckets[(*places)[p].bucket];
    const int64_t begin = (*places)[p].begin, elements = static_cast<int64_t>(parameter.tensor.elements());
    if (!rounds_to_weight(spec, cut, bucket, begin, elements)) {
      why_ = cat(name, ": element ", begin, " of bucket ", (*places)[p].bucket, " should be where ", spec.key,
                 " begins, but the value there does not round to its weight");
      return false;
    }
    ++fitted_;
    const bool is_replica = parameter.is_tied_copy || (spec.rule == layout::TpRule::kReplicated && cut.rank > 0);
    if (is_replica) continue;
    for (size_t k = 0; k < bucket.keys.size(); ++k) {
      int64_t done = 0;
      for_each_run(*bucket.tensors[k], *bucket.keys[k], begin, elements,
                   [&](const DcpReader::Chunk& chunk, int64_t at, int64_t here) {
                     parts_.push_back({spec, cut, kOptimizerKinds[k].role, bucket.keys[k], bucket.tensors[k], &chunk,
                                       at, done, done + here});
                     done += here;
                   });
    }
  }
  return true;
}

bool BucketReader::read_rank(const StagePlan& plan, const Rank& rank, OptimizerPart part, int64_t group) {
  int64_t buffer = 0;
  for (const MegatronChunk& chunk : plan.chunks) {
    for (const MegatronParameters& parameters : optimizer_buffers(model_, chunk, part)) {
      const std::string name =
          cat("dp_group_idx_", group, ".gbuf_idx_", buffer, part == OptimizerPart::kExperts ? " of experts" : "");
      const std::vector<Bucket> buckets = find_buckets(part, group, buffer++);
      for (const Bucket& bucket : buckets) used_.insert(bucket.tensors.begin(), bucket.tensors.end());
      if (!read_buffer(parameters, rank, buckets, name)) return false;
    }
  }
  return true;
}

bool BucketReader::read() {
  const int tp_size = model_.layout.tensor_model_parallel_size, pp_size = model_.layout.pipeline_model_parallel_size;
  const bool split = has_expert_optimizer(model_);
  for (int pp = 0; pp < pp_size; ++pp) {
    const StagePlan plan = plan_stage(model_, pp, spelling_, MegatronOptimizerForm::kNone, 0, weights_.dtype);
    for (int tp = 0; tp < tp_size; ++tp) {
      const OptimizerPart part = split ? OptimizerPart::kDense : OptimizerPart::kAll;
      if (!read_rank(plan, {tp, pp, 0}, part, tp + int64_t{tp_size} * pp)) return false;
    }
    const ExpertGrid& grid = model_.experts;
    for (int ep = 0; split && ep < grid.ep; ++ep) {
      for (int etp = 0; etp < grid.etp; ++etp) {
        const int64_t group = etp + grid.etp * (ep + int64_t{grid.ep} * pp);
        if (!read_rank(plan, {etp, pp, ep}, OptimizerPart::kExperts, group)) return false;
      }
    }
  }
  for (const auto& [key, tensor] : reader_.tensors()) {
    if (!is_bucket_key(key) || used_.contains(&tensor)) continue;
    why_ = cat(printable(key), " belongs to no rank of the layout in args");
    return false;
  }
  return true;
}

}  // namespace

bool is_bucket_key(std::string_view key) {
  constexpr std::string_view kChained = "chained_";
  if (key.starts_with(kChained)) key.remove_prefix(std::min(key.size(), key.find('.', kChained.size()) + 1));
  return key.starts_with(kDistributed);
}

DistBuckets read_dist_buckets(const DcpReader& reader, const MegatronArgs& args, const core::TransformerConfig& config,
                              int64_t padded_rows, const BucketWeights& weights) {
  for (const char* name : {"moe_use_legacy_grouped_gemm", "moe_tp_extend_ep"}) {
    if (!config.has_experts() || !args.flag(name)) continue;
    throw Error(ErrorCode::kUnsupported, cat(args.where(), ": args.", name,
                                             " is set: optimizer state stored by bucket is not supported for such "
                                             "a model; --drop-optimizer leaves it out"));
  }
  // args may name the layer implementation; the weights prove the order of its parameters.
  const bool own = args.text("transformer_impl").value_or("") == "local";
  std::string why;  // for the layer implementation that fits best
  size_t fitted = 0;
  for (const MegatronNaming naming : {own ? MegatronNaming::kLocal : MegatronNaming::kTransformerEngine,
                                      own ? MegatronNaming::kTransformerEngine : MegatronNaming::kLocal}) {
    const MegatronModel model = megatron_model_of_args(args, config, padded_rows, naming);
    for (const bool grouped : {false, true}) {
      if (grouped && (!config.has_experts() || naming == MegatronNaming::kLocal)) continue;
      BucketReader buckets(reader, model, {naming, grouped}, weights);
      if (buckets.read()) return {buckets.take_parts(), model.padded};
      if (why.empty() || buckets.fitted() > fitted) why = buckets.why();
      fitted = std::max(fitted, buckets.fitted());
    }
  }
  throw Error(ErrorCode::kCorruptData,
              cat(reader.folder(), ": the optimizer state stored by bucket does not belong to these weights: ", why));
}

}  // namespace ms::convert
