// The table of formats: how each is recognised, opened and written. A new format is one row, in formats.cpp.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
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

namespace ms::convert {

struct Family;

// What a format's reader gets besides the path.
struct SourceRequest {
  const ConvertOptions& options;
  const Family* family = nullptr;  // of --name-map; null: the one that config.json names
  PipelineExtras extras;           // of a mg source whose args do not say it
  bool for_proof = false;          // all copies of a weight that the files hold, also those that no conversion takes
};

// What a format's writer gets.
struct TargetRequest {
  const ckpt::Source& source;
  const ConvertOptions& options;
  Format from = Format::kNative;
  const Family* family = nullptr;                            // of --name-map or --model-type-hf; null: config.json's
  std::function<core::DType(const std::string& key)> dtype;  // of a canonical parameter in the result
  std::span<const core::TensorRole> roles;                   // that go into the result
  bool with_optimizer = false;                               // roles has optimizer state
  WriteOptions writing;
};

// The config.json of a result under Hugging Face's names. copy_from: set to the folder that came with it, if there is
// one. Says in `decisions` what config.json promises and the source does not hold. Throws kInvalidArgument if
// --hf-cfg-dir describes another model.
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
  bool holds_optimizer;   // a result can take optimizer state
  // What in the folder says that it is this format; empty if nothing does. Null: not recognised by content.
  std::string (*sign)(const std::string& path);
  // Appends to `decisions` what is not simply taken over, one sentence each. Null: the format is only written.
  std::unique_ptr<ckpt::Source> (*open)(const std::string& path, const SourceRequest& request,
                                        std::vector<std::string>& decisions);
  // Touches no file before ckpt::execute calls the sink, but refuses a place that is taken. Null: only read.
  Target (*make_target)(const TargetRequest& request, std::vector<std::string>& decisions);
};

// In the order in which a folder is asked for its format.
std::span<const FormatRow> formats();
const FormatRow& format_row(Format format);

}  // namespace ms::convert
