#include "tools/msprof/overlap.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> overlap_verb() {
  return std::make_unique<SectionVerb>(
      "overlap", "which kinds of device work overlap, and how much communication is hidden by computing",
      profile::Sections{&profile::sections::kBreakdown, &profile::sections::kKernelTypes});
}

}  // namespace ms::tools::msprof
