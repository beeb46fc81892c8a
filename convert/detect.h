// Detects the format of a checkpoint by its content, never by a suffix alone. The log names the rule that matched.
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

// Throws kNotFound if `path` does not exist or has no known format, kCorruptData for a save that was cut short.
Detection detect_format(const std::string& path);

struct OpenOptions {
  std::string hf_cfg_dir;  // folder of the config.json of a DCP, DeepSpeed or Meta source; empty: the checkpoint's
  bool as_named = false;   // keep the files' own names (named.h) even if the family is known
  bool for_proof = false;  // see SourceRequest::for_proof
};

// Opens a checkpoint of any format; logs a foreign format and the rule. Throws what detect_format and the format's
// reader throw.
std::unique_ptr<ckpt::Source> open_source(const std::string& path, const OpenOptions& options = {});

// Opens two checkpoints for a comparison; if only one of them has a family, both are opened under their own names.
// Throws kInvalidArgument if that is not possible.
struct SourcePair {
  std::unique_ptr<ckpt::Source> first, second;
};
SourcePair open_comparable(const std::string& first, const std::string& second, const OpenOptions& options = {});

}  // namespace ms::convert
