// What is in a folder: the format is told by content, never by a suffix alone, and the rule that fired is said aloud.
#pragma once

#include <memory>
#include <string>

#include "ckpt/source.h"

namespace ms::convert {

enum class Format { kNative, kHuggingFace, kMegatron, kMegatronDist, kDcp, kDeepSpeed, kUniversal, kMeta, kGguf };

std::string_view format_name(
    Format format);  // "ms", "hf", "mg", "dist", "dcp", "ds", "ucp", "meta", "gguf": as in --load-model-type

struct Detection {
  Format format = Format::kNative;
  std::string rule;  // "config.json and model.safetensors"
};

// Throws kNotFound if there is nothing at `path` or nothing we know, kCorruptData for a save that was cut short.
Detection detect_format(const std::string& path);

// Opens whatever is there; a foreign format is said in the log with the rule that fired. Throws what detect_format and
// the format's reader throw.
std::unique_ptr<ckpt::Source> open_source(const std::string& path);

}  // namespace ms::convert
