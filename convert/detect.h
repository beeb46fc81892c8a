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

// Opens a checkpoint of any format with default options; logs a foreign format and the rule. Throws what detect_format
// and the format's reader throw.
std::unique_ptr<ckpt::Source> open_source(const std::string& path);

}  // namespace ms::convert
