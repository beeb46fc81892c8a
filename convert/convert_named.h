// Conversions that keep tensor names, for any model: between Hugging Face folders, single files, DCP, DeepSpeed and
// FSDP rank files. `msckpt convert` uses them when it has no family; merge and reshard use them for such checkpoints.
#pragma once

#include <memory>
#include <string>

#include "ckpt/source.h"
#include "convert/convert.h"
#include "convert/format.h"
#include "core/io/json.h"

namespace ms::convert {

struct Family;

// Formats whose files have their own tensor names, and formats that can be written with any names.
bool has_own_names(Format format);
bool takes_any_names(Format format);

// Whether a checkpoint is read without a family: on request (--as-named), if the format has none, or if the family is
// unknown (no config.json in the folder or given, or one of an unknown model_type). FSDP rank files, which may contain
// LoRA weights, are read through a family only with hf_cfg_dir. family: from --name-map; null: none.
bool reads_as_named(Format format, const std::string& path, const std::string& hf_cfg_dir, bool as_named,
                    const Family* family);

// The small files of a result folder, which replace those of the source.
struct ResultFiles {
  std::string copy_from;                     // folder of tokenizer files and the like; empty: none
  nlohmann::json config, generation_config;  // null: those of copy_from
};

// Writes a source without a family (ckpt::CheckpointInfo::has_model is false) in the format report.to, applying the
// options for names, element type and shard size, and fills the report. job: see WriteOptions. Throws kUnsupported for
// formats that depend on the model, suggesting --name-map and --hf-cfg-dir; otherwise as make_named_target and
// ckpt::execute.
void convert_named(std::unique_ptr<ckpt::Source> source, const ConvertOptions& options, const std::string& job,
                   ConvertReport& report, const ResultFiles* files = nullptr);

}  // namespace ms::convert
