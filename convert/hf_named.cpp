#include "convert/hf_named.h"

#include <filesystem>

#include "convert/detail/printable.h"
#include "core/error.h"

namespace ms::convert {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

HfConfig config_of_named(const std::string& folder, const std::string& asked, std::string_view format) {
  const fs::path path = fs::path(asked.empty() ? folder : asked) / "config.json";
  if (asked.empty() && !fs::exists(path)) {
    throw Error(ErrorCode::kNotFound, cat(folder, ": ", format,
                                          " does not describe its model; give the folder of its config.json as "
                                          "--hf-cfg-dir"));
  }
  return read_hf_config(asked.empty() ? path.string() : asked);
}

std::optional<HfConfig> config_unless_named(const std::string& folder, const HfNamedOptions& options,
                                            std::string_view format) {
  if (options.as_named) return std::nullopt;
  return config_of_named(folder, options.hf_cfg_dir, format);
}

std::string without_wrappers(std::string_view key) {
  std::string out(key);
  for (const std::string_view wrapper : {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."}) {
    for (size_t at = out.find(wrapper); at != std::string::npos; at = out.find(wrapper, at)) {
      if (at == 0 || out[at - 1] == '.') {
        out.erase(at, wrapper.size());
      } else {
        ++at;
      }
    }
  }
  return out;
}

std::vector<std::string> prefixes_before(std::span<const std::string> names, std::string_view ending) {
  std::vector<std::string> prefixes;
  for (const std::string_view name : names) {
    if (!name.ends_with(ending)) continue;
    const std::string_view prefix = name.substr(0, name.size() - ending.size());
    if (prefix.empty() || prefix.ends_with('.')) prefixes.emplace_back(prefix);
  }
  return prefixes;
}

std::string prefix_of_family(std::span<const std::string> names, const Family& family, const std::string& where) {
  const std::string full = cat(family.prefix, embedding_name(family));
  std::string name = full;
  auto prefixes = prefixes_before(names, name);
  if (prefixes.empty()) {  // the bare model
    name = embedding_name(family);
    prefixes = prefixes_before(names, name);
  }
  if (prefixes.empty()) {
    throw Error(ErrorCode::kUnsupported,
                cat(where, ": no tensor is named ", full, ", as in a ", family.model_type, " transformers model; its ",
                    names.size(), " tensors begin with ", names.empty() ? std::string("none") : printable(names[0])));
  }
  if (prefixes.size() > 1) {
    throw Error(ErrorCode::kCorruptData, cat(where, ": ", name, " occurs several times: under ", printable(prefixes[0]),
                                             " and under ", printable(prefixes[1])));
  }
  return prefixes[0];
}

}  // namespace ms::convert
