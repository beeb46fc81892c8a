// Checkpoints that training programs write of a Hugging Face model: its names, somewhere in theirs, and no config.json.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/huggingface_config.h"

namespace ms::convert {

// How such a checkpoint is opened.
struct HfNamedOptions {
  std::string hf_cfg_dir;       // of the config.json that says the model; empty: the checkpoint's folder
  bool drop_optimizer = false;  // its state is not looked at
  bool as_named = false;        // whatever model it is: a source without a family (named_source.h), and no config.json
  bool for_proof = false;  // fp32 copies of weights too, although there are no moments that would make them masters
};

// asked: HfNamedOptions::hf_cfg_dir. Throws kNotFound, which `format` is named in, and what read_hf_config throws.
HfConfig config_of_named(const std::string& folder, const std::string& asked, std::string_view format);

// The same, or nothing with as_named.
std::optional<HfConfig> config_unless_named(const std::string& folder, const HfNamedOptions& options,
                                            std::string_view format);

// The key without what wrappers of modules put into it: _orig_mod., _fsdp_wrapped_module., _checkpoint_wrapped_module.
std::string without_wrappers(std::string_view key);

// What stands before the family's names in these: before the embedding's. The bare model lacks the family's
// prefix. Throws kUnsupported if no name ends in the embedding's, kCorruptData if several do; `where` begins
// the message.
std::string prefix_of_family(std::span<const std::string> names, const Family& family, const std::string& where);

// What stands before `ending` in the names that end in it as whole words: "model." of "model.norm.weight" and
// "norm.weight".
std::vector<std::string> prefixes_before(std::span<const std::string> names, std::string_view ending);

}  // namespace ms::convert
