// Handles tensors outside the family that are copied unchanged: the vision part of a multimodal model, adapters and
// heads next to a language model. They become buffers under their own names: whole, untrained, with their own dtype,
// stored by the first pipeline stage and replicated over tensor-parallel ranks.
//
// They are recognised by their names, which begin with none of our parameters' prefixes (embedding., decoder.,
// output_layer., mtp.).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/source.h"
#include "convert/torch/archive_sink.h"
#include "core/io/json.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

// Whether a name is canonical; passthrough tensors may not have such names.
bool is_canonical_name(std::string_view name);

// Returns a predicate on names. pattern: a regular expression that may match anywhere in a name, "" for none;
// of_wrapper: also select tensors of known wrappers. Throws kInvalidArgument for an invalid regular expression.
std::function<bool(std::string_view name)> passthrough_rule(const std::string& pattern, bool of_wrapper);

// Returns the passthrough tensors of a source, whole, in the source's order.
std::vector<core::ShardedTensor> passthrough_tensors(const ckpt::Source& source);

// Returns the source without them; for a wrapper only the language model, with its own config.json.
std::unique_ptr<ckpt::Source> drop_passthrough(std::unique_ptr<ckpt::Source> source);

// Adds the passthrough tensors of `original`, a folder of the model that the source was trained from, and that model's
// config.json. Throws kInvalidArgument if the source has such tensors itself, if `original` has none, or if its
// language model differs; and as open_huggingface.
std::unique_ptr<ckpt::Source> with_passthrough_from(std::unique_ptr<ckpt::Source> source, const std::string& original);

// Adds passthrough.pt and passthrough.json to the folder of a Megatron iteration, where Megatron ignores them: the
// tensors, as a torch.save dictionary, and what else a conversion back to Hugging Face needs. Adds nothing for a source
// without such tensors.
void add_passthrough_files(const ckpt::Source& source, ArchiveSinkOptions& sink, ckpt::ShardTable& targets);

// Returns the source of a Megatron iteration together with the tensors of those files; the source itself if there are
// none.
std::unique_ptr<ckpt::Source> with_passthrough_files(std::unique_ptr<ckpt::Source> source, const std::string& folder);

}  // namespace ms::convert
