#include "tools/msprof/breakdown.h"

#include "tools/msprof/hta.h"
#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class BreakdownVerb final : public SectionVerb {
 public:
  BreakdownVerb()
      : SectionVerb("breakdown", "computing, exposed communication, exposed memory and idle time of each rank",
                    {&profile::sections::kBreakdown, &profile::sections::kKernelTypes}, "--per-step") {}

  int run(const std::vector<std::string>& arguments) override {
    if (compat_.empty()) return SectionVerb::run(arguments);
    return run_hta({name(), /*page=*/false, per_step_}, input_, output_, arguments);
  }

 private:
  void add_flags(CLI::App& verb) override {
    verb.add_flag("--per-step", per_step_, "Add a table with one row per step");
    add_compat_flag(verb, compat_);
  }
  profile::Sections sections() const override {
    if (!per_step_) return SectionVerb::sections();
    return {&profile::sections::kBreakdown, &profile::sections::kPerStep, &profile::sections::kKernelTypes};
  }

  bool per_step_ = false;
  std::string compat_;
};

}  // namespace

std::unique_ptr<Verb> breakdown_verb() { return std::make_unique<BreakdownVerb>(); }

}  // namespace ms::tools::msprof
