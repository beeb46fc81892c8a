#include "tools/msprof/overlap.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> overlap_verb() {
  return std::make_unique<SectionVerb>(
      "overlap", "what runs at once, and how much of communication computing hides",
      profile::Sections{&profile::sections::kBreakdown, &profile::sections::kKernelTypes});
}

}  // namespace ms::tools::msprof
