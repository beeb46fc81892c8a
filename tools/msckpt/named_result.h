// Results of merge and reshard for sets of named tensors: formats that keep the names.
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

// Throws kInvalidArgument if these flags are given and the source has a family: the result is then native.
void refuse_named_result_flags(const NamedResultFlags& flags, const std::string& load_dir);

// For a source without a family: throws kUnsupported if the flags request more than a number of FSDP ranks.
void require_plain_layout(const LayoutFlags& flags, const ckpt::Source& source);

// Writes the source. load_dir: its config.json and small files are copied; default_format: the result's format if
// --save-model-type is not given and the format can be written.
convert::ConvertReport write_named_result(std::unique_ptr<ckpt::Source> source, const std::string& load_dir,
                                          convert::Format default_format, const NamedResultFlags& flags,
                                          const ReshardFlags& reshard, const WriteFlags& write, const Process& process,
                                          const char* verb);

}  // namespace ms::tools::msckpt
