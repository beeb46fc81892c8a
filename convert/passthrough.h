// Tensors that no family names and that are kept as they are: the vision part of a model that sees images, adapters and
// heads beside a language model. They travel under their own names as buffers: whole, untrained, of their own type,
// held by the first pipeline stage and replicated over tensor-parallel ranks.
//
// Their names begin with none of our parameters' (embedding., decoder., output_layer., mtp.), which is how they are
// told.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/source.h"
#include "convert/torch/archive_sink.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

// Whether a name is one of ours, which no tensor that passes through may have.
bool is_canonical_name(std::string_view name);

// Says of a name whether it passes. pattern: a regular expression found anywhere in it, "" for none; of_wrapper: those
// of known wrappers pass too. Throws kInvalidArgument for what is no regular expression.
std::function<bool(std::string_view name)> passthrough_rule(const std::string& pattern, bool of_wrapper);

// What passes through a source, whole, in its order.
std::vector<core::ShardedTensor> passthrough_tensors(const ckpt::Source& source);

// The source without them: of a wrapper the language model alone, with a config.json of its own.
std::unique_ptr<ckpt::Source> drop_passthrough(std::unique_ptr<ckpt::Source> source);

// The source with the tensors that pass through `original`, a folder of the model that it was trained from, and with
// that model's config.json. Throws kInvalidArgument if the source holds such tensors itself, if `original` holds none,
// or if its language model is another one; and as open_huggingface.
std::unique_ptr<ckpt::Source> with_passthrough_from(std::unique_ptr<ckpt::Source> source, const std::string& original);

// passthrough.pt and passthrough.json in the folder of a Megatron iteration, which Megatron does not look at: the
// tensors, as torch.save writes a dictionary, and what the way back to Hugging Face needs besides. Nothing is added
// for a source without such tensors.
void add_passthrough_files(const ckpt::Source& source, ArchiveSinkOptions& sink, ckpt::ShardTable& targets);

// The source of a Megatron iteration with what those files hold; itself if they are not there.
std::unique_ptr<ckpt::Source> with_passthrough_files(std::unique_ptr<ckpt::Source> source, const std::string& folder);

}  // namespace ms::convert
