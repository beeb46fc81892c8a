#include "tools/msprof/idle.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class IdleVerb final : public SectionVerb {
 public:
  IdleVerb()
      : SectionVerb("idle", "why each stream waits, and what the host did meanwhile",
                    {&profile::sections::kIdle, &profile::sections::kIdleCauses}) {}

 private:
  void add_flags(CLI::App& verb) override { delay_.add(verb); }
  profile::AnalysisOptions options() const override {
    profile::AnalysisOptions options = SectionVerb::options();
    options.consecutive_kernel_delay = delay_.consecutive_kernel_delay_ns;
    return options;
  }

  KernelDelayFlag delay_;
};

}  // namespace

std::unique_ptr<Verb> idle_verb() { return std::make_unique<IdleVerb>(); }

}  // namespace ms::tools::msprof
