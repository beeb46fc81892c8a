// What is in a checkpoint, as text for people and JSON for programs (schema msckpt/1). Reads no tensor data.
#pragma once

#include <string>

#include "ckpt/source.h"
#include "ckpt/values.h"
#include "core/io/json.h"

namespace ms::ckpt {

inline constexpr const char* kJsonSchema = "msckpt/1";

// {"schema","verb","path","iteration","layout","model","common","totals":{..},"tensors":[{"name","role","dtype",
// "shape","bytes","shards","logical_xxh3"}]}
nlohmann::json inspect_json(const Source& source, const std::string& path);

// A summary; with `tensors` also one line per tensor.
std::string inspect_text(const Source& source, const std::string& path, bool tensors);

// {"name","role","dtype","shape","elements","nan","inf","zeros","min","max","mean","std","histogram":{"from","to","counts"}},
// as JSON and as text.
nlohmann::json statistics_json(const ShardTable& table, int32_t tensor, const TensorStatistics& statistics);
std::string statistics_text(const ShardTable& table, int32_t tensor, const TensorStatistics& statistics);

// "1.5 GiB"
std::string bytes_text(int64_t bytes);

}  // namespace ms::ckpt
