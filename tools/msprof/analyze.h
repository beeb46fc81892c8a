// msprof analyze: one page of findings, largest lost time first.
#pragma once

#include <memory>

#include "tools/msprof/input_flags.h"
#include "tools/msprof/output_flags.h"
#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> analyze_verb();

// Runs analyze with default flags, for verbs that end with its page.
int analyze(const InputFlags& input, const OutputFlags& output, const std::vector<std::string>& arguments);

}  // namespace ms::tools::msprof
