// Which format a folder has: decided by its content, never by a suffix alone. The log names the rule that decided.
#pragma once

#include <memory>
#include <string>

#include "ckpt/source.h"
#include "convert/format.h"

namespace ms::convert {

struct Detection {
  Format format = Format::kNative;
  std::string rule;  // "config.json and model.safetensors"
};

// Throws kNotFound if there is nothing at `path` or nothing we know, kCorruptData for a save that was cut short.
Detection detect_format(const std::string& path);

struct OpenOptions {
  std::string hf_cfg_dir;  // of the config.json of a DCP, DeepSpeed or Meta source; empty: beside it
  bool as_named = false;   // tensors under the files' own names (named.h), whatever family it is of
  bool for_proof = false;  // as SourceRequest::for_proof
};

// Opens a checkpoint of any format; logs a foreign format and the rule. Throws what detect_format
// and the format's reader throw.
std::unique_ptr<ckpt::Source> open_source(const std::string& path, const OpenOptions& options = {});

// Two that are to be compared: where only one of them has a family, both under their own names. Throws kInvalidArgument
// if that cannot be.
struct SourcePair {
  std::unique_ptr<ckpt::Source> first, second;
};
SourcePair open_comparable(const std::string& first, const std::string& second, const OpenOptions& options = {});

}  // namespace ms::convert
