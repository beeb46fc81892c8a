// --compat hta: breakdown and analyze by the method of Holistic Trace Analysis 0.6.1.
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
  bool page = false;         // all of HTA's tables; else its breakdown only
  bool unsupported = false;  // a flag was given that these tables do not support
  int64_t consecutive_kernel_delay_ns = profile::kConsecutiveKernelDelay;
};
int run_hta(const HtaRequest& request, const InputFlags& input, const OutputFlags& output,
            const std::vector<std::string>& arguments);

}  // namespace ms::tools::msprof
