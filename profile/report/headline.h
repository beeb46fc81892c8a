// The headline figures of `analyze` and of the HTML report.
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
  std::optional<int64_t> mean_step_ns;  // over all steps of all ranks; none without steps
  JobTime time;                         // sum over ranks
  double load_balance = 1;              // average computing / largest computing
  bool on_cpu = false;                  // some rank has no device events: its host operators count as computing
};

// results: of sections::every().
Headline headline(const Store& store, const Results& results);

}  // namespace ms::profile
