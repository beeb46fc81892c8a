// The few figures that stand above everything else, in `analyze` and in the report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "profile/analysis/results.h"
#include "profile/store.h"

namespace ms::profile {

struct Headline {
  size_t ranks = 0, files = 0;
  size_t steps_of_first_rank = 0;
  std::optional<int64_t> mean_step_ns;  // over all steps of all ranks; nothing without steps
  JobTime time;                         // of all ranks together
  double load_balance = 1;              // average computing / largest computing
  bool on_cpu = false;                  // a trace without device events: operators of the host count as computing
};

// results: of sections::every().
Headline headline(const Store& store, const Results& results);

}  // namespace ms::profile
