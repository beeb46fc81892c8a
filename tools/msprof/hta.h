// breakdown and analyze counted as Holistic Trace Analysis 0.6.1 counts.
#pragma once

#include <string>
#include <vector>

#include "profile/analysis/idle.h"
#include "tools/msprof/input_flags.h"
#include "tools/msprof/output_flags.h"

namespace ms::tools::msprof {

void add_compat_flag(CLI::App& verb, std::string& compat);

struct HtaRequest {
  std::string verb;
  bool page = false;         // all its tables, else its breakdown
  bool unsupported = false;  // a flag was given that these tables do not have
  int64_t consecutive_kernel_delay_ns = profile::kConsecutiveKernelDelay;
};
int run_hta(const HtaRequest& request, const InputFlags& input, const OutputFlags& output,
            const std::vector<std::string>& arguments);

}  // namespace ms::tools::msprof
