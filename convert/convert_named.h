// Conversions that keep the names of tensors: between Hugging Face folders, single files, DCP, DeepSpeed and the files
// of FSDP's ranks, whatever the model is. What `msckpt convert` does without a family, and merge and reshard of such.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "ckpt/source.h"
#include "convert/convert.h"
#include "convert/format.h"

namespace ms::convert {

struct Family;

// Formats whose files have names of their own, and formats that can be written with any names.
bool has_own_names(Format format);
bool takes_any_names(Format format);

// Whether a checkpoint is read without a family: it is asked for (--as-named), the format has none, or nothing says
// which it is (no config.json with it or given, or one of an unknown model_type). The files of FSDP's ranks, which may
// hold parts of LoRA, are read through a family only with hf_cfg_dir.
// family: of --name-map; null: none.
bool reads_as_named(Format format, const std::string& path, const std::string& hf_cfg_dir, bool as_named,
                    const Family* family);

// Small files of a folder that is written, in place of those that lie beside the source.
struct ResultFiles {
  std::string copy_from;                     // folder of tokenizer files and the like; empty: none
  nlohmann::json config, generation_config;  // null: those of copy_from
};

// Writes a source without a family (ckpt::CheckpointInfo::has_model is false) as report.to says, with options' rules
// for names, element type and shard size. Fills the report. job: as WriteOptions. Throws kUnsupported for formats that
// depend on the model, naming --name-map and --hf-cfg-dir; and as make_named_target and ckpt::execute.
void convert_named(std::unique_ptr<ckpt::Source> source, const ConvertOptions& options, const std::string& job,
                   ConvertReport& report, const ResultFiles* files = nullptr);

}  // namespace ms::convert
