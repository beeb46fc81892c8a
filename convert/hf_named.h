// Helpers for checkpoints that training programs write of a Hugging Face model: they contain its tensor names within
// their own, and no config.json.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/huggingface_config.h"

namespace ms::convert {

// How to open such a checkpoint.
struct HfNamedOptions {
  std::string hf_cfg_dir;       // folder of the config.json that describes the model; empty: the checkpoint's folder
  bool drop_optimizer = false;  // skip optimizer state
  bool as_named = false;        // any model: open without a family (named_source.h) and without config.json
  bool for_proof = false;  // include fp32 copies of weights even if there are no moments, which would make them masters
};

// asked: HfNamedOptions::hf_cfg_dir. Throws kNotFound, naming `format`, and what read_hf_config throws.
HfConfig config_of_named(const std::string& folder, const std::string& asked, std::string_view format);

// The same; nullopt with as_named.
std::optional<HfConfig> config_unless_named(const std::string& folder, const HfNamedOptions& options,
                                            std::string_view format);

// Returns the key without the parts that module wrappers insert: _orig_mod., _fsdp_wrapped_module.,
// _checkpoint_wrapped_module.
std::string without_wrappers(std::string_view key);

// Returns the prefix before the family's names, found from the embedding's name. The bare model lacks the family's own
// prefix. Throws kUnsupported if no name ends in the embedding's, kCorruptData if several do, with `where` first in the
// message.
std::string prefix_of_family(std::span<const std::string> names, const Family& family, const std::string& where);

// Returns the prefixes of the names that end in `ending` at a word boundary: "model." for "model.norm.weight" and
// "norm.weight".
std::vector<std::string> prefixes_before(std::span<const std::string> names, std::string_view ending);

}  // namespace ms::convert
