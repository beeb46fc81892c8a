#include "tools/msckpt/named_result.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "convert/convert_named.h"
#include "convert/option_uses.h"
#include "core/error.h"
#include "core/layout/model_layout.h"
#include "core/log.h"

namespace ms::tools::msckpt {

using core::cat;
using core::Error;
using core::ErrorCode;

void add_named_result_flags(CLI::App& verb, NamedResultFlags& flags) {
  verb.add_option(
      "--save-model-type,--to", flags.save_model_type,
      "Format of the result for models of unknown family: hf, hf-bin, dcp or file (default: that of the source, else "
      "hf). For known models the result is a native checkpoint");
  verb.add_option("--max-shard-size", flags.max_shard_size,
                  "Maximum size of a file of a hf or hf-bin result, for example 5GB or 500MB (default: 5GB)");
}

void refuse_named_result_flags(const NamedResultFlags& flags, const std::string& load_dir) {
  if (flags.save_model_type.empty() && flags.max_shard_size.empty()) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      cat("--save-model-type and --max-shard-size apply to models of unknown family, but that of ", load_dir,
          " is known: the result is a native checkpoint. Use msckpt convert for other formats, or add --as-named"));
}

void require_plain_layout(const LayoutFlags& flags, const ckpt::Source& source) {
  layout::ModelLayout plain;
  plain.data_parallel_size = flags.target.data_parallel_size;
  plain.size_flags = flags.target.size_flags;
  const bool stages =
      flags.num_layers_per_virtual_pipeline_stage > 0 || flags.first_num_layers > 0 || flags.last_num_layers > 0;
  if (!(flags.target == plain) || stages || flags.expert_tensor_parallel_size) {
    ckpt::require_model(source.info(), "a parallel layout");
  }
}

convert::ConvertReport write_named_result(std::unique_ptr<ckpt::Source> source, const std::string& load_dir,
                                          convert::Format default_format, const NamedResultFlags& flags,
                                          const ReshardFlags& reshard, const WriteFlags& write, const Process& process,
                                          const char* verb) {
  require_plain_layout(reshard.layout, *source);
  convert::ConvertOptions options;
  options.load_dir = load_dir;
  options.save_dir = write.save_dir;
  options.dry_run = write.dry_run;
  options.compress = write.compress;
  options.write_path = core::parse_write_path(write.write_path);
  options.target_data_parallel_size = reshard.layout.target.data_parallel_size;
  options.drop_optimizer = reshard.drop_optimizer;
  options.dtype = reshard_options(reshard).params_dtype;
  options.execute = execute_options(write, process, verb);
  if (!flags.max_shard_size.empty()) {
    options.max_shard_size_bytes = convert::parse_size_bytes(flags.max_shard_size, "--max-shard-size");
  }
  convert::ConvertReport report;
  report.dry_run = options.dry_run;
  report.save_dir = options.save_dir;
  report.from = default_format;
  report.to = convert::takes_any_names(default_format) ? default_format : convert::Format::kHuggingFace;
  if (!flags.save_model_type.empty()) {
    report.to = convert::parse_target_format(flags.save_model_type, "--save-model-type");
  }
  convert::refuse_options_without_effect(options, report.from, report.to);
  convert::convert_named(std::move(source), options, "", report);
  core::log_progress("");
  for (const std::string& decision : report.decisions) core::log_info(cat("msckpt.", verb), decision);
  return report;
}

}  // namespace ms::tools::msckpt
