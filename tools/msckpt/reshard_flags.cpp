#include "tools/msckpt/reshard_flags.h"

#include "convert/convert.h"

namespace ms::tools::msckpt {

void add_reshard_flags(CLI::App& verb, ReshardFlags& flags) {
  add_layout_flags(verb, flags.layout);
  verb.add_option("--params-dtype", flags.params_dtype,
                  "Element type of the result's parameters: fp32, bf16 or fp16 (default: that of the source)");
}

ckpt::ReshardOptions reshard_options(const ReshardFlags& flags) {
  ckpt::ReshardOptions options;
  options.drop_optimizer = flags.drop_optimizer;
  if (!flags.params_dtype.empty()) {
    options.params_dtype = convert::parse_weight_dtype(flags.params_dtype, "--params-dtype");
  }
  return options;
}

}  // namespace ms::tools::msckpt
