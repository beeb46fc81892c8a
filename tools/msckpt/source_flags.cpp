#include "tools/msckpt/source_flags.h"

#include <CLI/CLI.hpp>

namespace ms::tools::msckpt {

void add_source_flags(CLI::App& verb, convert::OpenOptions& options) {
  verb.add_option("--hf-cfg-dir", options.hf_cfg_dir,
                  "Folder with the config.json that describes the model of a dcp, ds, ucp or meta checkpoint; without "
                  "one, tensors keep the names in the files (default: the checkpoint's folder)");
  verb.add_flag(
      "--as-named", options.as_named,
      "Keep the tensor names of the files even if the model is known; use it to compare parts of models or files with "
      "other names");
}

}  // namespace ms::tools::msckpt
