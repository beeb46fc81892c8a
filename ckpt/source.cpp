#include "ckpt/source.h"

#include <algorithm>

#include "ckpt/copy_box.h"
#include "core/error.h"
#include "core/io/aligned_buffer.h"
#include "core/layout/box.h"

namespace ms::ckpt {
namespace {

// read_into() reads this much at once, into a buffer that each thread keeps: page faults on a fresh buffer per box took
// longer than the reads.
constexpr int64_t kReadIntoBytes = int64_t{2} << 20;

}  // namespace

bool has_role(const Source& source, core::TensorRole role) {
  const ShardTable& shards = source.shards();
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    if (shards.role(static_cast<int32_t>(t)) == role) return true;
  }
  return false;
}

void require_model(const CheckpointInfo& info, std::string_view what) {
  if (info.has_model) return;
  const auto type = info.model_extra.find("model_type");
  const bool typed = type != info.model_extra.end() && type->is_string();
  const std::string seen =
      typed ? core::cat(" (config.json: model_type ", type->dump(-1, ' ', true).substr(0, 80), ")") : "";
  throw core::Error(
      core::ErrorCode::kUnsupported,
      core::cat(what, " depends on the model's structure, but these tensors belong to no known family", seen,
                ": give its config.json with --hf-cfg-dir, describe the family with --name-map, or keep "
                "the names of the tensors (--as-named --save-model-type hf, hf-bin, dcp or file)"));
}

bool is_one_run(const core::Dims& extent, const core::Dims& shape) {
  int64_t outer = 1;  // elements along the preceding axes
  for (size_t axis = 0; axis < extent.size(); ++axis) {
    if (axis > 0 && extent[axis] != shape[axis] && outer != 1) return false;
    outer *= extent[axis];
  }
  return true;
}

void Source::read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                       const core::Dims& out_shape, const core::Dims& out_offset) {
  const int64_t item = core::size_of(shards().dtype_of(static_cast<size_t>(shard)));
  if (is_one_run(extent, out_shape))
    return read(shard, offset, extent, out + layout::flat_index(out_shape, out_offset) * item);
  static thread_local core::AlignedBuffer buffer;
  const int64_t slice_bytes = core::num_elements(extent) / std::max<int64_t>(1, extent[0]) * item;
  const int64_t at_once = std::max<int64_t>(1, kReadIntoBytes / std::max<int64_t>(1, slice_bytes));
  for (int64_t first = 0; first < extent[0]; first += at_once) {
    core::Dims from(offset), part(extent), to(out_offset);
    from[0] += first;
    to[0] += first;
    part[0] = std::min(at_once, extent[0] - first);
    buffer.need(static_cast<size_t>(part[0] * slice_bytes));
    read(shard, from, part, buffer.data());
    copy_box(buffer.data(), part, core::Dims(part.size(), 0), out, out_shape, to, part, item);
  }
}

}  // namespace ms::ckpt
