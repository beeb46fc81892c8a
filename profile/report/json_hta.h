// What --compat hta counts as JSON, under the very words of Holistic Trace Analysis' tables.
#pragma once

#include "profile/analysis/hta_results.h"
#include "profile/report/json_writer.h"

namespace ms::profile {

// The value of result.hta.
void write_hta(JsonWriter& json, const HtaResults& results);

}  // namespace ms::profile
