// What merge and reshard write of sets of named tensors: the formats that keep names.
#pragma once

#include <memory>
#include <string>

#include "ckpt/source.h"
#include "convert/convert.h"
#include "tools/msckpt/layout_flags.h"
#include "tools/msckpt/reshard_flags.h"
#include "tools/msckpt/verb.h"
#include "tools/msckpt/write_flags.h"

namespace ms::tools::msckpt {

struct NamedResultFlags {
  std::string save_model_type, max_shard_size;  // empty: not given
};

void add_named_result_flags(CLI::App& verb, NamedResultFlags& flags);

// Throws kInvalidArgument if they are given and the source has a family: then the result is of ours.
void refuse_named_result_flags(const NamedResultFlags& flags, const std::string& load_dir);

// Throws kUnsupported, for a source without a family, if the flags ask for more than ranks of FSDP.
void require_plain_layout(const LayoutFlags& flags, const ckpt::Source& source);

// Writes the source. load_dir: whose config.json and small files go along; default_format: of the result, if
// --save-model-type does not say it and it can be written.
convert::ConvertReport write_named_result(std::unique_ptr<ckpt::Source> source, const std::string& load_dir,
                                          convert::Format default_format, const NamedResultFlags& flags,
                                          const ReshardFlags& reshard, const WriteFlags& write, const Process& process,
                                          const char* verb);

}  // namespace ms::tools::msckpt
