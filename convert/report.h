// What a conversion did, kept beside its result: OUT.msckpt_report.json next to OUT.
//
// {"schema": "msckpt-report/1", "msckpt": version, "source": {"path", "format", "detected_by", "iteration"}, "result":
// {"path", "format"}, "command": [..], "carried": [..], "dropped": [..], "from_flags": [..], "decisions": [..],
// "settings": what the source says of the run, "tensors": [{"name", "role", "dtype", "shape", "logical_xxh3"}],
// "proof": with --prove}. A logical hash (ckpt/logical_hash.h) holds in every layout and format of the same element
// type.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "convert/convert.h"

namespace ms::convert {

// "out/hf" and "out/hf/": "out/hf.msckpt_report.json". Throws kInvalidArgument for a path that ends in no name.
std::string report_path(const std::string& save_dir);

nlohmann::json report_json(const ConvertReport& report, const ConvertOptions& options);

// Writes it, whole or not at all, and returns its path. Throws kIo.
std::string keep_report(const ConvertReport& report, const ConvertOptions& options);

}  // namespace ms::convert
