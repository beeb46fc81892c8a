#include "tools/msprof/launch.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> launch_verb() {
  return std::make_unique<SectionVerb>("launch", "delays between launches and their kernels",
                                       profile::Sections{&profile::sections::kLaunches});
}

}  // namespace ms::tools::msprof
