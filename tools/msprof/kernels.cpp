#include "tools/msprof/kernels.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class KernelsVerb final : public SectionVerb {
 public:
  KernelsVerb()
      : SectionVerb("kernels", "time by kernel, with rates and the differences between ranks",
                    {&profile::sections::kKernels, &profile::sections::kKernelSpread}) {}

 private:
  void add_flags(CLI::App& verb) override { output_.add_top(verb); }
};

}  // namespace

std::unique_ptr<Verb> kernels_verb() { return std::make_unique<KernelsVerb>(); }

}  // namespace ms::tools::msprof
