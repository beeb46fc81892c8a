#include "tools/msckpt/source_flags.h"

#include <CLI/CLI.hpp>

namespace ms::tools::msckpt {

void add_source_flags(CLI::App& verb, convert::OpenOptions& options) {
  verb.add_option("--hf-cfg-dir", options.hf_cfg_dir,
                  "Folder whose config.json says the model of a dcp, ds, ucp or meta checkpoint; without one, tensors "
                  "are read under their own names (the one beside the checkpoint)");
  verb.add_flag(
      "--as-named", options.as_named,
      "Read tensors under the names that the files have, even of a known model; for comparing parts of models "
      "or files that name them otherwise");
}

}  // namespace ms::tools::msckpt
