// Results of --compat hta as JSON, with the column names of Holistic Trace Analysis as keys.
#pragma once

#include "profile/analysis/hta_results.h"
#include "profile/report/json_writer.h"

namespace ms::profile {

// Writes the object that is the value of "hta" in the report's "result".
void write_hta(JsonWriter& json, const HtaResults& results);

}  // namespace ms::profile
