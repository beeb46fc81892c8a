// Stores a report of what a conversion did next to its result: OUT.msckpt_report.json next to OUT.
//
// {"schema": "msckpt-report/1", "msckpt": version, "source": {"path", "format", "detected_by", "iteration"}, "result":
// {"path", "format"}, "command": [..], "carried": [..], "dropped": [..], "from_flags": [..], "decisions": [..],
// "settings": the run's settings in the source, "tensors": [{"name", "role", "dtype", "shape", "logical_xxh3"}],
// "proof": with --prove}. A logical hash (ckpt/logical_hash.h) is the same in every layout and format of the same
// element type.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "convert/convert.h"

namespace ms::convert {

// Returns "out/hf.msckpt_report.json" for "out/hf" and "out/hf/". Throws kInvalidArgument for a path without a last
// name.
std::string report_path(const std::string& save_dir);

nlohmann::json report_json(const ConvertReport& report, const ConvertOptions& options);

// Writes the report, whole or not at all, and returns its path. Throws kIo.
std::string keep_report(const ConvertReport& report, const ConvertOptions& options);

}  // namespace ms::convert
