// The table of formats: how each is recognised, opened and written. A new format is one row in formats.cpp.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/shard_table.h"
#include "ckpt/sink.h"
#include "ckpt/source.h"
#include "convert/convert_options.h"
#include "convert/format.h"
#include "convert/placed_result.h"
#include "core/io/json.h"

namespace ms::convert {

struct Family;

// Arguments of a format's reader besides the path.
struct SourceRequest {
  const ConvertOptions& options;
  const Family* family = nullptr;  // from --name-map; null: the one that config.json names
  PipelineExtras extras;           // for a mg source whose args lack them
  bool for_proof = false;          // include all copies of a weight, also those that a conversion does not use
};

// Arguments of a format's writer.
struct TargetRequest {
  const ckpt::Source& source;
  const ConvertOptions& options;
  Format from = Format::kNative;
  const Family* family = nullptr;                            // from --name-map or --model-type-hf; null: config.json's
  std::function<core::DType(const std::string& key)> dtype;  // of a canonical parameter in the target
  std::span<const core::TensorRole> roles;                   // roles that the target gets
  bool with_optimizer = false;                               // roles include optimizer state
  WriteOptions writing;
};

// Returns the config.json of a target under Hugging Face's names. Sets copy_from to the folder that came with it, if
// any. Notes in `decisions` what config.json promises and the source lacks. Throws kInvalidArgument if --hf-cfg-dir
// describes another model.
nlohmann::json result_config(const TargetRequest& request, std::string* copy_from, std::vector<std::string>& decisions);

struct Target {
  ckpt::ShardTable shards;
  ckpt::CheckpointInfo info;
  std::unique_ptr<ckpt::Sink> sink;  // null in a dry run of a native target
};

struct FormatRow {
  Format format;
  std::string_view name;
  std::string_view noun;  // "a Hugging Face folder"
  bool holds_optimizer;   // a target can hold optimizer state
  // Returns what identifies the format in the folder; empty if nothing does. Null: not detected by content.
  std::string (*sign)(const std::string& path);
  // Appends to `decisions` one sentence for each thing that is not simply copied. Null: the format is only written.
  std::unique_ptr<ckpt::Source> (*open)(const std::string& path, const SourceRequest& request,
                                        std::vector<std::string>& decisions);
  // Writes nothing before ckpt::execute calls the sink, but refuses a path that is in use. Null: the format is only
  // read.
  Target (*make_target)(const TargetRequest& request, std::vector<std::string>& decisions);
};

// Returns the rows in the order in which detection tries them.
std::span<const FormatRow> formats();
const FormatRow& format_row(Format format);

}  // namespace ms::convert
