// Decides which annotations of a trace are training iterations.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

// By NameId: whether annotations of this name are steps. The user's expression (RankTrace::step_annotation) decides if
// it is set; else the names are "ProfilerStep#N" or "iteration N".
std::vector<bool> step_names(const RankTrace& trace);

// The number of a step: in its name, or the first group of the user's expression; nullopt if there is none.
std::optional<int64_t> step_number(const RankTrace& trace, NameId name);

}  // namespace ms::profile
